// The unigram language model of SentencePiece (Kudo, 2018): of all ways to cut a text into pieces,
// the one whose scores (logarithms of probabilities) have the largest sum.
#ifndef MILLRACE_ENGINE_DATA_UNIGRAM_MODEL_H_
#define MILLRACE_ENGINE_DATA_UNIGRAM_MODEL_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/data/prefix_tree.h"
#include "engine/data/sentencepiece_file.h"

namespace millrace {

// What one thread needs to encode: 12 bytes a byte of the longest text.
struct UnigramScratch {
  struct End {
    int32_t id, begin;
    float score;
  };
  std::vector<End> ends;
  std::vector<End> path;
};

// Immutable; any thread may call.
class UnigramModel {
 public:
  explicit UnigramModel(const SentencePieceModel& model);

  // Appends the tokens of `text`, normalized, of less than 2 GiB. Unknown characters are their
  // bytes' tokens where the model has those, else one unknown token for neighbours.
  void Encode(absl::string_view text, UnigramScratch* scratch, std::vector<int32_t>* tokens) const;

 private:
  PrefixTree pieces_;
  std::vector<float> scores_;
  std::vector<bool> user_defined_;
  std::vector<int32_t> bytes_;  // empty without byte_fallback
  float unknown_score_, most_score_;
  int32_t unknown_;
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_DATA_UNIGRAM_MODEL_H_
