#include "engine/data/unigram_model.h"

#include <algorithm>
#include <cfloat>
#include <string>
#include <utility>

#include "engine/data/byte_pieces.h"
#include "engine/data/sentencepiece_normalizer.h"

namespace millrace {
namespace {

// Below the least score of a piece.
constexpr float kUnknownPenalty = 10;

}  // namespace

UnigramModel::UnigramModel(const SentencePieceModel& model) : unknown_(model.unknown_id) {
  using Kind = SentencePieceModel::Kind;
  std::vector<std::pair<std::string, int32_t>> strings;
  scores_.resize(model.pieces.size());
  user_defined_.resize(model.pieces.size());
  if (model.byte_fallback) bytes_.resize(256);
  // As in the library: scores are logarithms, so that this is the largest, unless one is above 0.
  float least = FLT_MAX, most = FLT_MIN;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const auto& [text, score, kind] = model.pieces[id];
    scores_[id] = score;
    user_defined_[id] = kind == Kind::kUserDefined;
    if (kind == Kind::kByte) {
      bytes_[static_cast<size_t>(ByteOfPiece(text))] = static_cast<int32_t>(id);
    }
    if (kind == Kind::kNormal) {
      least = std::min(least, score);
      most = std::max(most, score);
    }
    if (kind == Kind::kNormal || kind == Kind::kUserDefined) {
      strings.emplace_back(text, static_cast<int32_t>(id));
    }
  }
  unknown_score_ = least - kUnknownPenalty;
  most_score_ = most;
  pieces_ = PrefixTree::Build(std::move(strings));
}

void UnigramModel::Encode(absl::string_view text, UnigramScratch* scratch,
                          std::vector<int32_t>* tokens) const {
  // ends[i]: the last piece of the best way to cut text[0, i).
  std::vector<UnigramScratch::End>& ends = scratch->ends;
  ends.assign(text.size() + 1, {-1, -1, 0});
  for (size_t begin = 0; begin < text.size();) {
    const size_t character = CharacterLength(text.substr(begin));
    const float before = ends[begin].score;
    bool known = false;
    const auto consider = [&](size_t length, int32_t id, float score) {
      UnigramScratch::End& end = ends[begin + length];
      const float sum = before + score;
      if (end.begin >= 0 && sum <= end.score) return;
      end = {id, static_cast<int32_t>(begin), sum};
    };
    pieces_.ForPrefixes(text.substr(begin), [&](size_t length, int32_t id) {
      const auto index = static_cast<size_t>(id);
      // One that a user has defined is always chosen.
      consider(
          length, id,
          user_defined_[index] ? static_cast<float>(length) * most_score_ - 0.1f : scores_[index]);
      known |= length == character;
    });
    if (!known) consider(character, unknown_, unknown_score_);
    begin += character;
  }
  std::vector<UnigramScratch::End>& path = scratch->path;
  path.clear();
  for (size_t end = text.size(); end > 0; end = static_cast<size_t>(ends[end].begin)) {
    path.push_back({ends[end].id, static_cast<int32_t>(end), 0});
  }
  bool after_unknown = false;
  size_t begin = 0;
  for (auto piece = path.rbegin(); piece != path.rend(); ++piece) {
    const auto end = static_cast<size_t>(piece->begin);
    const bool unknown = piece->id == unknown_;
    if (unknown && !bytes_.empty()) {
      for (char byte : text.substr(begin, end - begin)) {
        tokens->push_back(bytes_[static_cast<unsigned char>(byte)]);
      }
    } else if (!unknown || !after_unknown) {
      tokens->push_back(piece->id);
    }
    after_unknown = unknown;
    begin = end;
  }
}

}  // namespace millrace
