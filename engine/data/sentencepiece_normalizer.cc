#include "engine/data/sentencepiece_normalizer.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "engine/base/status_macros.h"
#include "engine/data/unicode_text.h"

namespace millrace {
namespace {

constexpr absl::string_view kMark = "\xe2\x96\x81";  // ▁
// That a string of the table may become: NFKC makes 33 of U+FDFA.
constexpr size_t kMostTextBytes = 256;

// A unit of the trie.
bool HasLeaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t LabelOf(uint32_t unit) { return unit & (uint32_t{1} << 31 | 0xff); }
uint32_t OffsetOf(uint32_t unit) { return unit >> 10 << ((unit & (1u << 9)) >> 6); }
uint32_t ValueOf(uint32_t unit) { return unit & ((uint32_t{1} << 31) - 1); }

bool InsideCharacter(absl::string_view text, size_t at) {
  return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80;
}

}  // namespace

size_t CharacterLength(absl::string_view text) {
  static constexpr char kLengths[] = "\1\1\1\1\1\1\1\1\1\1\1\1\2\2\3\4";
  const auto length = static_cast<size_t>(kLengths[static_cast<unsigned char>(text[0]) >> 4]);
  return std::min(length, text.size());
}

absl::StatusOr<CharacterMap> CharacterMap::Parse(absl::string_view table) {
  CharacterMap map;
  if (table.empty()) return map;
  uint32_t trie_bytes = 0;
  if (table.size() > sizeof(trie_bytes)) {
    std::memcpy(&trie_bytes, table.data(), sizeof(trie_bytes));
    table.remove_prefix(sizeof(trie_bytes));
  }
  if (trie_bytes == 0 || trie_bytes % sizeof(uint32_t) != 0 || trie_bytes >= table.size()) {
    return absl::InvalidArgumentError("the table of its normalizer is malformed");
  }
  map.units_.resize(trie_bytes / sizeof(uint32_t));
  std::memcpy(map.units_.data(), table.data(), trie_bytes);
  map.texts_ = std::string(table.substr(trie_bytes));
  std::string storage;
  if (WellFormed(map.texts_, &storage).data() != map.texts_.data()) {
    return absl::InvalidArgumentError("the table of its normalizer is not UTF-8");
  }
  for (absl::string_view text : absl::StrSplit(map.texts_, '\0')) {
    if (text.size() > kMostTextBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("the table of its normalizer makes a string of ", text.size(),
                       " bytes; at most ", kMostTextBytes, " are supported"));
    }
  }
  return map;
}

size_t CharacterMap::Find(absl::string_view text, absl::string_view* becomes) const {
  size_t longest = 0;
  uint32_t place = OffsetOf(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    place ^= byte;
    if (place >= units_.size()) break;
    const uint32_t unit = units_[place];
    if (LabelOf(unit) != byte) break;
    place ^= OffsetOf(unit);
    if (!HasLeaf(unit)) continue;
    if (place >= units_.size()) break;
    const uint32_t value = ValueOf(units_[place]);
    if (InsideCharacter(text, i + 1) || value >= texts_.size() || InsideCharacter(texts_, value)) {
      continue;
    }
    longest = i + 1;
    const absl::string_view rest = absl::string_view(texts_).substr(value);
    *becomes = rest.substr(0, rest.find('\0'));
  }
  return longest;
}

absl::StatusOr<SentencePieceNormalizer> SentencePieceNormalizer::Create(
    const SentencePieceModel& model, PrefixTree fixed) {
  SentencePieceNormalizer normalizer;
  MILLRACE_ASSIGN_OR_RETURN(normalizer.map_, CharacterMap::Parse(model.character_map));
  normalizer.fixed_ = std::move(fixed);
  normalizer.space_ = model.escape_whitespaces ? kMark : " ";
  normalizer.prefix_ = model.add_dummy_prefix && !model.whitespace_as_suffix;
  normalizer.suffix_ = model.add_dummy_prefix && model.whitespace_as_suffix;
  normalizer.trim_ = model.remove_extra_whitespaces;
  return normalizer;
}

std::pair<absl::string_view, size_t> SentencePieceNormalizer::Prefix(absl::string_view text) const {
  if (fixed_.Begins(text[0])) {
    int32_t value;
    const size_t length = fixed_.Longest(text, &value);
    if (length > 0) return {text.substr(0, length), length};
  }
  if (!map_.empty()) {
    absl::string_view becomes;
    const size_t length = map_.Find(text, &becomes);
    if (length > 0) return {becomes, length};
  }
  const size_t length = CharacterLength(text);
  return {text.substr(0, length), length};
}

void SentencePieceNormalizer::Apply(absl::string_view text, std::string* normalized) const {
  normalized->clear();
  while (trim_ && !text.empty()) {
    const auto [becomes, length] = Prefix(text);
    if (becomes != " ") break;
    text.remove_prefix(length);
  }
  if (text.empty()) return;
  normalized->reserve(text.size() + text.size() / 2);
  if (prefix_) normalized->append(space_.data(), space_.size());
  if (map_.empty() && fixed_.empty() && !trim_) {
    normalized->append(absl::StrReplaceAll(text, {{" ", space_}}));
    text = "";
  }
  bool after_space = trim_;
  while (!text.empty()) {
    auto [becomes, length] = Prefix(text);
    while (after_space && absl::ConsumePrefix(&becomes, " ")) {
    }
    for (char byte : becomes) {
      if (byte == ' ') {
        normalized->append(space_.data(), space_.size());
      } else {
        normalized->push_back(byte);
      }
    }
    if (!becomes.empty()) after_space = absl::EndsWith(becomes, " ");
    if (!trim_) after_space = false;
    text.remove_prefix(length);
  }
  while (trim_ && absl::EndsWith(*normalized, space_)) {
    normalized->resize(normalized->size() - space_.size());
  }
  if (suffix_) normalized->append(space_.data(), space_.size());
}

}  // namespace millrace
