// The batches of a run, in an order that two integers resume exactly.
//
//   MILLRACE_ASSIGN_OR_RETURN(DataLoader loader, DataLoader::Create(store, options));
//   std::vector<MicroBatch> step = loader.NextStep(tokens_per_step, tokens_per_micro_batch);
//   checkpoint.data = loader.cursor();
//
// Each epoch goes once through the training sequences in an order of its own; a step may begin in
// one epoch and end in the next. With a fixed number of tokens a step, what a step holds is a
// function of the seed and the step's number alone.
#ifndef MILLRACE_ENGINE_DATA_DATA_LOADER_H_
#define MILLRACE_ENGINE_DATA_DATA_LOADER_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/data/batch.h"
#include "engine/data/packing.h"
#include "engine/data/split.h"
#include "engine/data/token_store.h"

namespace millrace {

struct DataOptions {
  int64_t sequence_length = 0;  // ≥ 2
  double eval_fraction = 0.02;  // in [0, 0.5]
  uint64_t seed = 0;            // of the order
};

// The next training sequence is number `position` of epoch `epoch`.
struct DataCursor {
  int64_t epoch = 0;
  int64_t position = 0;

  bool operator==(const DataCursor&) const = default;
};

class DataLoader {
 public:
  // `store` must outlive this. INVALID_ARGUMENT when the text is too short for one training
  // sequence and, with eval_fraction > 0, one evaluation sequence.
  static absl::StatusOr<DataLoader> Create(const TokenStore& store, const DataOptions& options);

  int64_t sequence_length() const { return packing_.sequence_length(); }
  int64_t train_sequences() const { return split_.train_sequences(); }
  int64_t eval_sequences() const { return split_.eval_sequences(); }

  const DataCursor& cursor() const { return cursor_; }
  // INVALID_ARGUMENT when there is no such place in this data.
  absl::Status Seek(const DataCursor& cursor);

  // The next step's micro-batches; moves the cursor. tokens_per_step is a multiple of
  // tokens_per_micro_batch, which is a multiple of sequence_length.
  std::vector<MicroBatch> NextStep(int64_t tokens_per_step, int64_t tokens_per_micro_batch);

  // At most `max_sequences` evaluation sequences, always the same ones, spread over all of them;
  // the last micro-batch may be smaller. Leaves the cursor alone.
  std::vector<MicroBatch> EvaluationBatches(int64_t tokens_per_micro_batch,
                                            int64_t max_sequences) const;

 private:
  DataLoader(const Packing& packing, Split split, uint64_t seed)
      : packing_(packing), split_(std::move(split)), seed_(seed) {}

  Packing packing_;
  Split split_;
  uint64_t seed_;
  DataCursor cursor_;
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_DATA_DATA_LOADER_H_
