// The parts of a tokenizer file put together: added tokens, normalizer, pre-tokenizer, model,
// decoder.
#ifndef MILLRACE_ENGINE_DATA_BPE_TOKENIZER_H_
#define MILLRACE_ENGINE_DATA_BPE_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/data/added_tokens.h"
#include "engine/data/bpe_model.h"
#include "engine/data/normalizer.h"
#include "engine/data/pre_tokenizer.h"
#include "engine/data/scratch_pool.h"
#include "engine/data/token_decoder.h"
#include "engine/data/tokenizer.h"

namespace millrace {

struct BpeTokenizerParts {
  std::vector<AddedToken> added_tokens;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::unique_ptr<const BpeModel> model;
  TokenDecoder decoder;
  std::string begin_of_document;  // a token; empty for none
};

class BpeTokenizer : public Tokenizer {
 public:
  // INVALID_ARGUMENT where an added token has another id than the model gives it, or than it would
  // get by being added behind the vocabulary, or where none is `begin_of_document` or
  // `end_of_document`.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Create(BpeTokenizerParts parts,
                                                           std::string name,
                                                           absl::string_view end_of_document);

  std::string name() const override { return name_; }
  int64_t vocab_size() const override { return static_cast<int64_t>(tokens_.size()); }
  std::optional<int32_t> begin_of_document() const override { return begin_of_document_; }
  int32_t end_of_document() const override { return end_of_document_; }

  void Encode(absl::string_view text, std::vector<int32_t>* tokens) const override;
  std::string Decode(absl::Span<const int32_t> tokens) const override;

 private:
  struct Scratch {
    RegexScratch regex;
    BpeScratch bpe;
    TextPieces pieces;
    std::vector<AddedTokenFinder::Part> parts, normalized_parts;
    std::string well_formed, normalized;
  };

  explicit BpeTokenizer(BpeTokenizerParts parts);
  absl::Status AddTokens();
  void Encode(absl::string_view text, Scratch* scratch, std::vector<int32_t>* tokens) const;
  // The id of a token as the file writes it; -1 for none.
  int32_t IdOf(absl::string_view token) const;
  // Text without added tokens, normalized.
  void EncodeSegment(absl::string_view text, bool at_document_begin, Scratch* scratch,
                     std::vector<int32_t>* tokens) const;

  std::string name_;
  std::optional<int32_t> begin_of_document_;
  int32_t end_of_document_ = -1;
  BpeTokenizerParts parts_;
  // What each id is decoded from; empty where an id is left out.
  std::vector<std::string> tokens_;
  AddedTokenFinder as_is_, normalized_;
  mutable ScratchPool<Scratch> scratch_;
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_DATA_BPE_TOKENIZER_H_
