// Cutting the token stream into sequences.
//
// Sequence i is the window of sequence_length + 1 tokens that begins at i · (sequence_length + 1):
// its inputs are the window without the last token, its targets the window without the first.
// Windows do not overlap, so sequences share no token; a rest at the stream's end is left out.
//
// Documents do not see each other: a target is the next token of the same document, and where the
// input is an end-of-document token it is -1. A document that goes on in the next window begins
// anew there, with position 0. (A document's last token has the end-of-document token as target.)
#ifndef MILLRACE_ENGINE_DATA_PACKING_H_
#define MILLRACE_ENGINE_DATA_PACKING_H_

#include <cstdint>

#include "engine/data/batch.h"
#include "engine/data/token_store.h"

namespace millrace {

class Packing {
 public:
  // `store` must outlive this. sequence_length ≥ 2, so that every sequence has a target.
  Packing(const TokenStore& store, int64_t sequence_length)
      : store_(&store), sequence_length_(sequence_length) {}

  int64_t sequence_length() const { return sequence_length_; }
  int64_t sequences() const { return store_->size() / (sequence_length_ + 1); }

  // Adds sequence `index`, in [0, sequences()), to the end of `batch`.
  void Append(int64_t index, MicroBatch* batch) const;

 private:
  const TokenStore* store_;
  int64_t sequence_length_;
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_DATA_PACKING_H_
