#include "engine/data/bpe_model.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "engine/base/status_macros.h"
#include "engine/data/byte_alphabet.h"
#include "engine/data/byte_pieces.h"
#include "engine/data/json_fields.h"
#include "engine/data/unicode_text.h"

namespace millrace {
namespace {

constexpr int64_t kMostId = (int64_t{1} << 24) - 1;
constexpr absl::string_view kMark = "\xe2\x96\x81";  // ▁
constexpr int32_t kNoMerge = INT32_MAX;
// Up to so many symbols, looking through all of them is quicker than a queue.
constexpr size_t kShort = 48;

uint64_t Pair(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

absl::Status Problem(absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat("model: ", problem));
}

}  // namespace

absl::StatusOr<std::unique_ptr<const BpeModel>> BpeModel::Parse(const nlohmann::json& value,
                                                                bool byte_level) {
  JsonFields fields(value, "model");
  // The oldest files leave it out.
  const std::string type = fields.String("type", "BPE");
  if (type != "BPE") {
    return fields.Problem(absl::StrCat("type \"", type, "\" is not supported; only BPE is"));
  }
  const nlohmann::json& dropout = fields.Value("dropout");
  if (!dropout.is_null() && dropout != 0) {
    return fields.Problem("\"dropout\" is not supported; set it to null");
  }
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!fields.String(affix, "").empty()) {
      return fields.Problem(absl::StrCat("\"", affix, "\" is not supported"));
    }
  }
  std::unique_ptr<BpeModel> model(new BpeModel);
  model->byte_level_ = byte_level;
  model->ignore_merges_ = fields.Bool("ignore_merges", false);
  model->fuse_unknown_ = fields.Bool("fuse_unk", false);
  const bool byte_fallback = fields.Bool("byte_fallback", false);
  const std::string unknown = fields.String("unk_token", "");
  const nlohmann::json& vocabulary = fields.Value("vocab");
  const nlohmann::json& merges = fields.Value("merges");
  MILLRACE_RETURN_IF_ERROR(fields.Finish());
  MILLRACE_RETURN_IF_ERROR(model->ReadVocabulary(vocabulary));
  if (!unknown.empty()) {
    model->unknown_ = model->IdOf(unknown);
    if (model->unknown_ < 0) {
      return Problem(absl::StrCat("unk_token \"", unknown, "\" is not in the vocabulary"));
    }
  }
  MILLRACE_RETURN_IF_ERROR(model->ReadMerges(merges));
  MILLRACE_RETURN_IF_ERROR(model->ReadBytes(byte_fallback));
  return std::unique_ptr<const BpeModel>(std::move(model));
}

absl::Status BpeModel::ReadVocabulary(const nlohmann::json& value) {
  if (!value.is_object()) return Problem("\"vocab\" must be an object of tokens and their ids");
  for (const auto& [token, id] : value.items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > uint64_t{kMostId}) {
      return Problem(absl::StrCat("the id of token \"", token.substr(0, 100),
                                  "\" must be a whole number from 0 to ", kMostId));
    }
    const auto index = id.get<size_t>();
    if (index >= tokens_.size()) tokens_.resize(index + 1);
    if (!tokens_[index].empty()) {
      return Problem(absl::StrCat("tokens \"", tokens_[index].substr(0, 100), "\" and \"",
                                  token.substr(0, 100), "\" have the same id, ", index));
    }
    tokens_[index] = token;
    ids_[token] = static_cast<int32_t>(index);
  }
  return absl::OkStatus();
}

absl::Status BpeModel::ReadMerges(const nlohmann::json& value) {
  if (!value.is_array()) return Problem("\"merges\" must be an array");
  words_begin_with_mark_ = !byte_level_ && IdOf(kMark) >= 0;
  int32_t rank = 0;
  for (const nlohmann::json& merge : value) {
    std::string left, right;
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      left = merge[0].get<std::string>();
      right = merge[1].get<std::string>();
    } else if (merge.is_string()) {
      const std::string both = merge.get<std::string>();
      if (absl::StartsWith(both, "#version")) continue;
      const size_t space = both.find(' ');
      if (space == std::string::npos || both.find(' ', space + 1) != std::string::npos) {
        return Problem(absl::StrCat("merge ", rank, " is no two tokens with a space between"));
      }
      left = both.substr(0, space);
      right = both.substr(space + 1);
    } else {
      return Problem(absl::StrCat("merge ", rank, " is neither a string nor a pair of strings"));
    }
    const int32_t left_id = IdOf(left), right_id = IdOf(right), id = IdOf(left + right);
    if (left_id < 0 || right_id < 0 || id < 0) {
      return Problem(absl::StrCat("merge ", rank, ": token \"",
                                  (left_id < 0    ? left
                                   : right_id < 0 ? right
                                                  : left + right)
                                      .substr(0, 100),
                                  "\" is not in the vocabulary"));
    }
    merges_[Pair(left_id, right_id)] = {rank++, id};
    if (absl::StartsWith(right, kMark) && !absl::EndsWith(left, kMark)) {
      words_begin_with_mark_ = false;
    }
  }
  return absl::OkStatus();
}

absl::Status BpeModel::ReadBytes(bool byte_fallback) {
  bytes_.fill(-1);
  if (byte_level_) {
    int known = 0;
    for (size_t id = 0; id < tokens_.size(); ++id) {
      std::string bytes;
      if (tokens_[id].empty() || !AppendBytesOfToken(tokens_[id], &bytes)) continue;
      if (bytes.size() == 1) {
        bytes_[static_cast<unsigned char>(bytes[0])] = static_cast<int32_t>(id);
        ++known;
      }
      if (ignore_merges_) ids_of_bytes_[std::move(bytes)] = static_cast<int32_t>(id);
    }
    if (byte_fallback && known < 256) {
      return Problem("\"byte_fallback\" with ByteLevel is not supported where bytes are missing");
    }
    return absl::OkStatus();
  }
  if (!byte_fallback) return absl::OkStatus();
  byte_fallback_ = true;
  for (int byte = 0; byte < 256; ++byte) {
    bytes_[static_cast<size_t>(byte)] = IdOf(PieceOfByte(byte));
  }
  return absl::OkStatus();
}

std::unique_ptr<const BpeModel> BpeModel::FromPieces(const SentencePieceModel& pieces) {
  std::unique_ptr<BpeModel> model(new BpeModel);
  model->ReadPieces(pieces);
  return model;
}

void BpeModel::ReadPieces(const SentencePieceModel& model) {
  using Kind = SentencePieceModel::Kind;
  fuse_unknown_ = true;
  unknown_ = model.unknown_id;
  byte_fallback_ = model.byte_fallback;
  bytes_.fill(-1);
  tokens_.resize(model.pieces.size());
  std::vector<int32_t> by_score;
  for (size_t i = 0; i < model.pieces.size(); ++i) {
    const auto& [text, score, kind] = model.pieces[i];
    const auto id = static_cast<int32_t>(i);
    tokens_[i] = text;
    if (kind == Kind::kByte) bytes_[static_cast<size_t>(ByteOfPiece(text))] = id;
    if (kind == Kind::kUnused && unused_.empty()) unused_.resize(model.pieces.size());
    if (kind == Kind::kUnused) unused_[i] = true;
    if (kind == Kind::kNormal || kind == Kind::kUnused) by_score.push_back(id);
    if (kind == Kind::kNormal || kind == Kind::kUnused) ids_[text] = id;
  }
  words_begin_with_mark_ = IdOf(kMark) >= 0;
  for (int32_t id : by_score) {
    const absl::string_view text = tokens_[static_cast<size_t>(id)];
    for (size_t at = 0; at < text.size();) {
      const size_t begin = at;
      NextCharacter(text, &at);
      const absl::string_view character = text.substr(begin, at - begin);
      if (SymbolOf(character) >= 0) continue;
      hidden_ids_[character] = static_cast<int32_t>(tokens_.size() + hidden_.size());
      hidden_.emplace_back(character);
    }
  }
  const auto score_of = [&](int32_t id) { return model.pieces[static_cast<size_t>(id)].score; };
  std::stable_sort(by_score.begin(), by_score.end(),
                   [&](int32_t a, int32_t b) { return score_of(a) > score_of(b); });
  int32_t rank = 0;
  for (size_t i = 0; i < by_score.size(); ++i) {
    if (i > 0 && score_of(by_score[i]) != score_of(by_score[i - 1])) ++rank;
    AddMergesInto(by_score[i], rank);
  }
}

void BpeModel::AddMergesInto(int32_t id, int32_t rank) {
  const absl::string_view text = tokens_[static_cast<size_t>(id)];
  size_t at = 0;
  if (!text.empty()) NextCharacter(text, &at);
  for (; at < text.size(); NextCharacter(text, &at)) {
    const absl::string_view left = text.substr(0, at), right = text.substr(at);
    const int32_t left_id = SymbolOf(left), right_id = SymbolOf(right);
    if (left_id < 0 || right_id < 0) continue;
    merges_[Pair(left_id, right_id)] = {rank, id};
    if (absl::StartsWith(right, kMark) && !absl::EndsWith(left, kMark)) {
      words_begin_with_mark_ = false;
    }
  }
}

int32_t BpeModel::SymbolOf(absl::string_view text) const {
  const int32_t id = IdOf(text);
  if (id >= 0 || hidden_ids_.empty()) return id;
  const auto found = hidden_ids_.find(text);
  return found == hidden_ids_.end() ? -1 : found->second;
}

int32_t BpeModel::IdOf(absl::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? -1 : found->second;
}

const BpeModel::Merge* BpeModel::FindMerge(int32_t left, int32_t right) const {
  const auto found = merges_.find(Pair(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

void BpeModel::Encode(absl::string_view piece, BpeScratch* scratch,
                      std::vector<int32_t>* tokens) const {
  if (ignore_merges_) {
    const auto& ids = byte_level_ ? ids_of_bytes_ : ids_;
    const auto whole = ids.find(piece);
    if (whole != ids.end()) {
      tokens->push_back(whole->second);
      return;
    }
  }
  size_t begin = 0;
  if (words_begin_with_mark_) {
    for (size_t mark = piece.find(kMark); mark != absl::string_view::npos;
         mark = piece.find(kMark, mark + kMark.size())) {
      if (mark == begin || absl::EndsWith(piece.substr(begin, mark - begin), kMark)) continue;
      EncodeWord(piece.substr(begin, mark - begin), scratch, tokens);
      begin = mark;
    }
  }
  EncodeWord(piece.substr(begin), scratch, tokens);
}

void BpeModel::EncodeWord(absl::string_view word, BpeScratch* scratch,
                          std::vector<int32_t>* tokens) const {
  if (scratch->cache.Find(word, tokens)) return;
  scratch->ids.clear();
  AppendCharacters(word, &scratch->ids);
  if (scratch->ids.size() <= kShort && unused_.empty()) {
    MergeShort(scratch);
  } else {
    MergeLong(scratch);
  }
  if (!unused_.empty() || !hidden_.empty()) ResolveSymbols(scratch);
  scratch->cache.Keep(word, scratch->ids);
  tokens->insert(tokens->end(), scratch->ids.begin(), scratch->ids.end());
}

void BpeModel::AppendCharacters(absl::string_view word, std::vector<int32_t>* ids) const {
  bool pending = false;  // an unknown token not yet appended, so that others fuse with it
  for (size_t at = 0; at < word.size();) {
    const size_t begin = at;
    int32_t id;
    if (byte_level_) {
      id = bytes_[static_cast<unsigned char>(word[at++])];
    } else {
      NextCharacter(word, &at);
      id = SymbolOf(word.substr(begin, at - begin));
    }
    if (id >= 0) {
      if (std::exchange(pending, false)) ids->push_back(unknown_);
      ids->push_back(id);
      continue;
    }
    const absl::string_view character = word.substr(begin, at - begin);
    const auto byte_id = [&](char byte) { return bytes_[static_cast<unsigned char>(byte)]; };
    if (byte_fallback_ && std::all_of(character.begin(), character.end(),
                                      [&](char byte) { return byte_id(byte) >= 0; })) {
      // A pending unknown token stays so, and comes behind these: Hugging Face's order.
      for (char byte : character) ids->push_back(byte_id(byte));
      continue;
    }
    if (unknown_ < 0) continue;
    if (pending && !fuse_unknown_) ids->push_back(unknown_);
    pending = true;
  }
  if (pending) ids->push_back(unknown_);
}

void BpeModel::MergeShort(BpeScratch* scratch) const {
  std::vector<int32_t>& ids = scratch->ids;
  std::vector<int32_t>& ranks = scratch->ranks;  // of the pair that begins at each symbol
  const auto rank_at = [&](size_t i) {
    if (i + 1 >= ids.size()) return kNoMerge;
    const Merge* merge = FindMerge(ids[i], ids[i + 1]);
    return merge == nullptr ? kNoMerge : merge->rank;
  };
  ranks.resize(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) ranks[i] = rank_at(i);
  while (ids.size() > 1) {
    const auto least = std::min_element(ranks.begin(), ranks.end());
    if (*least == kNoMerge) return;
    const auto i = static_cast<size_t>(least - ranks.begin());
    ids[i] = FindMerge(ids[i], ids[i + 1])->id;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(i) + 1);
    ranks.erase(least + 1);
    ranks[i] = rank_at(i);
    if (i > 0) ranks[i - 1] = rank_at(i - 1);
  }
}

void BpeModel::MergeLong(BpeScratch* scratch) const {
  using Candidate = BpeScratch::Candidate;
  std::vector<BpeScratch::Symbol>& symbols = scratch->symbols;
  std::vector<Candidate>& queue = scratch->queue;
  const auto later = [](const Candidate& a, const Candidate& b) {
    return std::pair(a.rank, a.position) > std::pair(b.rank, b.position);
  };
  const auto consider = [&](int32_t position) {
    const BpeScratch::Symbol& left = symbols[static_cast<size_t>(position)];
    if (left.next < 0) return;
    const Merge* merge = FindMerge(left.id, symbols[static_cast<size_t>(left.next)].id);
    if (merge == nullptr) return;
    if (!unused_.empty() && unused_[static_cast<size_t>(merge->id)]) {
      scratch->parts[merge->id] = {left.id, symbols[static_cast<size_t>(left.next)].id};
    }
    queue.push_back({merge->rank, position, merge->id});
    std::push_heap(queue.begin(), queue.end(), later);
  };

  const auto count = static_cast<int32_t>(scratch->ids.size());
  symbols.clear();
  queue.clear();
  scratch->parts.clear();
  for (int32_t i = 0; i < count; ++i) {
    symbols.push_back(
        {scratch->ids[static_cast<size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1, false});
  }
  for (int32_t i = 0; i < count; ++i) consider(i);
  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end(), later);
    const Candidate best = queue.back();
    queue.pop_back();
    BpeScratch::Symbol& left = symbols[static_cast<size_t>(best.position)];
    if (left.merged_away || left.next < 0) continue;
    BpeScratch::Symbol& right = symbols[static_cast<size_t>(left.next)];
    // The neighbours may have changed since.
    const Merge* merge = FindMerge(left.id, right.id);
    if (merge == nullptr || merge->id != best.merged_id) continue;
    left.id = best.merged_id;
    right.merged_away = true;
    left.next = right.next;
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = best.position;
    if (left.previous >= 0) consider(left.previous);
    consider(best.position);
  }
  scratch->ids.clear();
  for (int32_t i = 0; i >= 0; i = symbols[static_cast<size_t>(i)].next) {
    scratch->ids.push_back(symbols[static_cast<size_t>(i)].id);
  }
}

void BpeModel::ResolveSymbols(BpeScratch* scratch) const {
  std::vector<int32_t> resolved;
  for (int32_t symbol : scratch->ids) AppendToken(symbol, *scratch, &resolved);
  scratch->ids = std::move(resolved);
}

void BpeModel::AppendToken(int32_t symbol, const BpeScratch& scratch,
                           std::vector<int32_t>* ids) const {
  const auto parts = scratch.parts.find(symbol);
  if (parts != scratch.parts.end()) {
    AppendToken(parts->second.first, scratch, ids);
    AppendToken(parts->second.second, scratch, ids);
    return;
  }
  const auto index = static_cast<size_t>(symbol);
  const bool known = index < tokens_.size() && (unused_.empty() || !unused_[index]);
  if (known && symbol != unknown_) {
    ids->push_back(symbol);
  } else if (byte_fallback_) {
    for (char byte : index < tokens_.size() ? tokens_[index] : hidden_[index - tokens_.size()]) {
      ids->push_back(bytes_[static_cast<unsigned char>(byte)]);
    }
  } else if (ids->empty() || ids->back() != unknown_) {
    ids->push_back(unknown_);
  }
}

}  // namespace millrace
