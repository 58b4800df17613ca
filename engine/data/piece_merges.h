// The merges that make a SentencePiece BPE vocabulary's pieces, as Hugging Face lists them.
#ifndef MILLRACE_ENGINE_DATA_PIECE_MERGES_H_
#define MILLRACE_ENGINE_DATA_PIECE_MERGES_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace millrace {

struct ScoredPiece {
  std::string text;  // well-formed UTF-8, not empty
  float score = 0;
  int32_t id = 0;
};

// Every way to make a piece of two others, those with the highest score first. (Of pieces of equal
// score SentencePiece would take the leftmost in a text; a list of merges cannot say that.)
// INVALID_ARGUMENT above kMostMergeBytes of text, which long pieces of anyone's could come to: all
// ways to cut one have the square of its length.
inline constexpr int64_t kMostMergeBytes = int64_t{64} << 20;
absl::StatusOr<std::vector<std::pair<std::string, std::string>>> MergesOfPieces(
    std::vector<ScoredPiece> pieces);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_DATA_PIECE_MERGES_H_
