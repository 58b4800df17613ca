#include "engine/data/piece_merges.h"

#include <algorithm>
#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/data/unicode_text.h"

namespace millrace {

absl::StatusOr<std::vector<std::pair<std::string, std::string>>> MergesOfPieces(
    std::vector<ScoredPiece> pieces) {
  struct Merge {
    float score;
    int32_t piece, left, right;
    absl::string_view left_text, right_text;
  };
  absl::flat_hash_map<absl::string_view, int32_t> ids;
  for (const ScoredPiece& piece : pieces) ids[piece.text] = piece.id;
  std::vector<Merge> merges;
  int64_t bytes = 0;
  for (const ScoredPiece& piece : pieces) {
    const absl::string_view text = piece.text;
    size_t at = 0;
    for (NextCharacter(text, &at); at < text.size(); NextCharacter(text, &at)) {
      const auto left = ids.find(text.substr(0, at)), right = ids.find(text.substr(at));
      if (left == ids.end() || right == ids.end()) continue;
      bytes += static_cast<int64_t>(text.size());
      if (bytes > kMostMergeBytes) {
        return absl::InvalidArgumentError(absl::StrCat(
            "the merges that make these pieces have more than ", kMostMergeBytes, " bytes"));
      }
      merges.push_back(
          {piece.score, piece.id, left->second, right->second, left->first, right->first});
    }
  }
  std::sort(merges.begin(), merges.end(), [](const Merge& a, const Merge& b) {
    return std::tie(b.score, a.piece, a.left, a.right) <
           std::tie(a.score, b.piece, b.left, b.right);
  });
  std::vector<std::pair<std::string, std::string>> texts;
  texts.reserve(merges.size());
  for (const Merge& merge : merges) texts.emplace_back(merge.left_text, merge.right_text);
  return texts;
}

}  // namespace millrace
