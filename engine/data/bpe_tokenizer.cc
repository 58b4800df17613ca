#include "engine/data/bpe_tokenizer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/data/unicode_text.h"

namespace millrace {

BpeTokenizer::BpeTokenizer(BpeTokenizerParts parts) : parts_(std::move(parts)) {}

absl::StatusOr<std::unique_ptr<Tokenizer>> BpeTokenizer::Create(BpeTokenizerParts parts,
                                                                std::string name,
                                                                absl::string_view end_of_document) {
  std::unique_ptr<BpeTokenizer> tokenizer(new BpeTokenizer(std::move(parts)));
  tokenizer->name_ = std::move(name);
  MILLRACE_RETURN_IF_ERROR(tokenizer->AddTokens());
  tokenizer->end_of_document_ = tokenizer->IdOf(end_of_document);
  if (tokenizer->end_of_document_ < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "has no token \"", end_of_document,
        "\" to end documents with; name one of its tokens as eos_token in tokenizer_config.json"));
  }
  const std::string& begin = tokenizer->parts_.begin_of_document;
  if (!begin.empty()) {
    tokenizer->begin_of_document_ = tokenizer->IdOf(begin);
    if (*tokenizer->begin_of_document_ < 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "post_processor: begins texts with \"", begin.substr(0, 100), "\", which is no token"));
    }
  }
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

absl::Status BpeTokenizer::AddTokens() {
  const BpeModel& model = *parts_.model;
  tokens_ = model.tokens();
  RegexScratch scratch;
  int64_t most = -1;  // the largest id of an added token
  for (const AddedToken& token : parts_.added_tokens) {
    int64_t id = model.IdOf(token.content);
    if (id < 0) id = most >= model.size() ? most + 1 : model.size();
    if (id != token.id) {
      return absl::InvalidArgumentError(
          absl::StrCat("added_tokens: \"", token.content.substr(0, 100), "\" has id ", token.id,
                       ", but its place in the vocabulary gives it ", id));
    }
    most = std::max(most, id);
    const auto index = static_cast<size_t>(id);
    if (index >= tokens_.size()) tokens_.resize(index + 1);
    if (!tokens_[index].empty() && tokens_[index] != token.content) {
      return absl::InvalidArgumentError(
          absl::StrCat("added_tokens: \"", token.content.substr(0, 100), "\" has id ", id,
                       ", which \"", tokens_[index].substr(0, 100), "\" has"));
    }
    std::string storage;
    absl::string_view content = token.content;
    if (token.normalized) content = parts_.normalizer.Apply(content, &storage, &scratch);
    (token.normalized ? normalized_ : as_is_).Add(token, content);
    // Hugging Face decodes to the normalized content too.
    tokens_[index] = std::string(content);
  }
  return absl::OkStatus();
}

int32_t BpeTokenizer::IdOf(absl::string_view token) const {
  if (token.empty()) return -1;
  for (const AddedToken& added : parts_.added_tokens) {
    if (added.content == token) return added.id;
  }
  return parts_.model->IdOf(token);
}

void BpeTokenizer::Encode(absl::string_view text, std::vector<int32_t>* tokens) const {
  scratch_.With([&](Scratch& scratch) { Encode(text, &scratch, tokens); });
}

void BpeTokenizer::Encode(absl::string_view text, Scratch* scratch,
                          std::vector<int32_t>* tokens) const {
  text = WellFormed(text, &scratch->well_formed);
  as_is_.Split(text, &scratch->parts);
  for (const AddedTokenFinder::Part& part : scratch->parts) {
    if (part.id >= 0) {
      tokens->push_back(part.id);
      continue;
    }
    const absl::string_view segment = parts_.normalizer.Apply(
        text.substr(part.begin, part.end - part.begin), &scratch->normalized, &scratch->regex);
    normalized_.Split(segment, &scratch->normalized_parts);
    for (const AddedTokenFinder::Part& inner : scratch->normalized_parts) {
      if (inner.id >= 0) {
        tokens->push_back(inner.id);
      } else {
        EncodeSegment(segment.substr(inner.begin, inner.end - inner.begin),
                      part.begin == 0 && inner.begin == 0, scratch, tokens);
      }
    }
  }
}

void BpeTokenizer::EncodeSegment(absl::string_view text, bool at_document_begin, Scratch* scratch,
                                 std::vector<int32_t>* tokens) const {
  TextPieces& pieces = scratch->pieces;
  parts_.pre_tokenizer.Apply(text, at_document_begin, &pieces, &scratch->regex);
  for (TextRange range : pieces.pieces) {
    parts_.model->Encode(pieces.text.substr(range.begin, range.end - range.begin), &scratch->bpe,
                         tokens);
  }
}

std::string BpeTokenizer::Decode(absl::Span<const int32_t> tokens) const {
  std::vector<std::string> texts;
  for (int32_t token : tokens) {
    if (token < 0 || token >= vocab_size() || token == end_of_document_) continue;
    const std::string& text = tokens_[static_cast<size_t>(token)];
    if (!text.empty()) texts.push_back(text);
  }
  return parts_.decoder.Decode(std::move(texts));
}

}  // namespace millrace
