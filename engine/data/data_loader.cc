#include "engine/data/data_loader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/data/permutation.h"

namespace millrace {
namespace {

absl::Status TooShort(int64_t tokens, int64_t sequence_length, int64_t needed) {
  std::string fix = "add text";
  if (const int64_t longest = tokens / needed - 1; longest >= 2) {
    absl::StrAppend(&fix, ", or lower data.sequence_length to at most ", longest);
  }
  if (needed == 2 && tokens > sequence_length) {
    absl::StrAppend(&fix, ", or set data.eval_fraction to 0");
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "data.train: the dataset has ", tokens, " tokens, less than the ",
      needed * (sequence_length + 1), " that ",
      needed == 2 ? "one sequence for training and one for evaluation need" : "one sequence needs",
      " (data.sequence_length ", sequence_length, ", plus the token that follows); ", fix));
}

}  // namespace

absl::StatusOr<DataLoader> DataLoader::Create(const TokenStore& store, const DataOptions& options) {
  if (options.sequence_length < 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data.sequence_length: ", options.sequence_length, " is too short; it must be at least 2"));
  }
  if (!(options.eval_fraction >= 0.0 && options.eval_fraction <= 0.5)) {
    return absl::InvalidArgumentError(absl::StrCat("data.eval_fraction: ", options.eval_fraction,
                                                   " is out of range; give 0 to 0.5"));
  }
  const Packing packing(store, options.sequence_length);
  const int64_t needed = options.eval_fraction > 0 ? 2 : 1;
  if (packing.sequences() < needed) {
    return TooShort(store.size(), options.sequence_length, needed);
  }
  return DataLoader(packing, Split::Make(packing.sequences(), options.eval_fraction), options.seed);
}

absl::Status DataLoader::Seek(const DataCursor& cursor) {
  if (cursor.epoch < 0 || cursor.position < 0 || cursor.position >= train_sequences()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "there is no sequence ", cursor.position, " of epoch ", cursor.epoch, " in data of ",
        train_sequences(), " training sequences; resume with the data that the job began with"));
  }
  cursor_ = cursor;
  return absl::OkStatus();
}

std::vector<MicroBatch> DataLoader::NextStep(int64_t tokens_per_step,
                                             int64_t tokens_per_micro_batch) {
  const int64_t sequences = tokens_per_micro_batch / sequence_length();
  std::vector<MicroBatch> step(tokens_per_step / tokens_per_micro_batch);
  Permutation order(train_sequences(), seed_, cursor_.epoch);
  for (MicroBatch& batch : step) {
    for (int64_t i = 0; i < sequences; ++i) {
      packing_.Append(split_.Train(order(cursor_.position)), &batch);
      if (++cursor_.position == train_sequences()) {
        cursor_ = {cursor_.epoch + 1, 0};
        order = Permutation(train_sequences(), seed_, cursor_.epoch);
      }
    }
  }
  return step;
}

std::vector<MicroBatch> DataLoader::EvaluationBatches(int64_t tokens_per_micro_batch,
                                                      int64_t max_sequences) const {
  const int64_t count = std::min(max_sequences, eval_sequences());
  const int64_t sequences = tokens_per_micro_batch / sequence_length();
  std::vector<MicroBatch> batches;
  for (int64_t k = 0; k < count; ++k) {
    if (k % sequences == 0) batches.emplace_back();
    packing_.Append(split_.Eval(k * eval_sequences() / count), &batches.back());
  }
  return batches;
}

}  // namespace millrace
