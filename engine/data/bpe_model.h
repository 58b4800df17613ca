// Byte pair encoding (Sennrich et al., 2016): a piece of text begins as its characters, or bytes,
// and of all neighbours that have a merge, those of the earliest merge become one token, from left
// to right, until none is left.
#ifndef MILLRACE_ENGINE_DATA_BPE_MODEL_H_
#define MILLRACE_ENGINE_DATA_BPE_MODEL_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/data/sentencepiece_file.h"
#include "engine/data/word_cache.h"
#include "nlohmann/json.hpp"

namespace millrace {

// What one thread needs to encode: bounded by the longest piece, but for the cache (4 MiB).
struct BpeScratch {
  struct Symbol {
    int32_t id;
    int32_t previous, next;  // indices; -1 at the ends
    bool merged_away;
  };
  struct Candidate {
    int32_t rank, position, merged_id;
  };
  WordCache cache;
  std::vector<int32_t> ids;
  std::vector<int32_t> ranks;
  std::vector<Symbol> symbols;
  std::vector<Candidate> queue;
  // The latest pair looked at that would become a token that is not to be used.
  absl::flat_hash_map<int32_t, std::pair<int32_t, int32_t>> parts;
};

// Immutable; any thread may call.
class BpeModel {
 public:
  // `value`: the file's "model". Refused: other types than BPE, dropout, prefixes and suffixes of
  // subwords, merges of tokens that are not in the vocabulary, ids of 2^24 and above, one id for
  // two tokens. With `byte_level` the vocabulary is written in the byte alphabet (byte_alphabet.h).
  static absl::StatusOr<std::unique_ptr<const BpeModel>> Parse(const nlohmann::json& value,
                                                               bool byte_level);

  // The model of a SentencePiece file, whose type is BPE: of all neighbours that make up a piece,
  // those with the highest score become one, the leftmost first where scores are equal. Pieces that
  // are marked as unused are taken apart again at the end.
  static std::unique_ptr<const BpeModel> FromPieces(const SentencePieceModel& pieces);

  // Appends the tokens of a piece: well-formed UTF-8 if not byte_level. A character without a token
  // becomes the tokens of its bytes (<0x41>) with byte_fallback, else the unknown token if there is
  // one, else nothing.
  void Encode(absl::string_view piece, BpeScratch* scratch, std::vector<int32_t>* tokens) const;

  // The id of a token as the file writes it; -1 for none.
  int32_t IdOf(absl::string_view token) const;
  // Each id's token as the file writes it; empty where an id is left out.
  const std::vector<std::string>& tokens() const { return tokens_; }
  // Tokens in the vocabulary.
  int64_t size() const { return static_cast<int64_t>(ids_.size()); }

 private:
  struct Merge {
    int32_t rank, id;
  };

  BpeModel() = default;
  absl::Status ReadVocabulary(const nlohmann::json& value);
  absl::Status ReadMerges(const nlohmann::json& value);
  absl::Status ReadBytes(bool byte_fallback);

  void ReadPieces(const SentencePieceModel& pieces);
  void AddMergesInto(int32_t id, int32_t rank);
  // The id of a token, or of a character that only other tokens have.
  int32_t SymbolOf(absl::string_view text) const;

  const Merge* FindMerge(int32_t left, int32_t right) const;
  void EncodeWord(absl::string_view word, BpeScratch* scratch, std::vector<int32_t>* tokens) const;
  void AppendCharacters(absl::string_view word, std::vector<int32_t>* ids) const;
  void MergeShort(BpeScratch* scratch) const;
  void MergeLong(BpeScratch* scratch) const;
  // Makes tokens of symbols that are none: what FromPieces has that files of merges have not.
  void ResolveSymbols(BpeScratch* scratch) const;
  void AppendToken(int32_t symbol, const BpeScratch& scratch, std::vector<int32_t>* ids) const;

  bool byte_level_ = false, ignore_merges_ = false, fuse_unknown_ = false, byte_fallback_ = false;
  // No merge joins "▁" to anything before it but another "▁", so that pieces can be cut there.
  bool words_begin_with_mark_ = false;
  int32_t unknown_ = -1;
  std::vector<std::string> tokens_;
  absl::flat_hash_map<std::string, int32_t> ids_;
  // Tokens by the bytes they stand for; with byte_level and ignore_merges only.
  absl::flat_hash_map<std::string, int32_t> ids_of_bytes_;
  // Token of each byte, -1 for none: of the byte alphabet, or for byte_fallback.
  std::array<int32_t, 256> bytes_{};
  absl::flat_hash_map<uint64_t, Merge> merges_;

  // FromPieces only. Tokens that are taken apart again.
  std::vector<bool> unused_;
  // Characters that are no tokens but parts of some: their ids follow those of tokens.
  std::vector<std::string> hidden_;
  absl::flat_hash_map<std::string, int32_t> hidden_ids_;
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_DATA_BPE_MODEL_H_
