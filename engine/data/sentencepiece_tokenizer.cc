#include "engine/data/sentencepiece_tokenizer.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "engine/base/status_macros.h"
#include "engine/data/bpe_model.h"
#include "engine/data/byte_pieces.h"
#include "engine/data/scratch_pool.h"
#include "engine/data/sentencepiece_normalizer.h"
#include "engine/data/unicode_text.h"
#include "engine/data/unigram_model.h"

namespace millrace {
namespace {

using Kind = SentencePieceModel::Kind;

constexpr absl::string_view kMark = "\xe2\x96\x81";  // ▁

class SentencePieceTokenizer : public Tokenizer {
 public:
  SentencePieceTokenizer(SentencePieceModel model, SentencePieceNormalizer normalizer,
                         std::string name, std::optional<int32_t> begin_of_document,
                         int32_t end_of_document)
      : model_(std::move(model)),
        normalizer_(std::move(normalizer)),
        name_(std::move(name)),
        begin_of_document_(begin_of_document),
        end_of_document_(end_of_document) {
    if (model_.type == SentencePieceModel::Type::kBpe) {
      bpe_ = BpeModel::FromPieces(model_);
    } else {
      unigram_ = std::make_unique<UnigramModel>(model_);
    }
  }

  std::string name() const override { return name_; }
  int64_t vocab_size() const override { return static_cast<int64_t>(model_.pieces.size()); }
  std::optional<int32_t> begin_of_document() const override { return begin_of_document_; }
  int32_t end_of_document() const override { return end_of_document_; }

  void Encode(absl::string_view text, std::vector<int32_t>* tokens) const override {
    scratch_.With([&](Scratch& scratch) {
      normalizer_.Apply(WellFormed(text, &scratch.well_formed), &scratch.normalized);
      if (bpe_) {
        EncodeBpe(scratch.normalized, &scratch, tokens);
      } else {
        unigram_->Encode(scratch.normalized, &scratch.unigram, tokens);
      }
    });
  }

  std::string Decode(absl::Span<const int32_t> tokens) const override {
    const bool trims = model_.remove_extra_whitespaces;
    std::string text;
    // Spaces at the begin were put there, or would not have stayed.
    bool at_begin = model_.add_dummy_prefix || trims;
    for (int32_t token : tokens) {
      if (token < 0 || token >= vocab_size() || token == end_of_document_) continue;
      const SentencePieceModel::Piece& piece = model_.pieces[static_cast<size_t>(token)];
      if (piece.kind == Kind::kByte) {
        text.push_back(static_cast<char>(ByteOfPiece(piece.text)));
      } else if (piece.kind == Kind::kUnknown) {
        text += model_.unknown_text;
      } else if (piece.kind != Kind::kControl) {
        absl::string_view rest = piece.text;
        if (!text.empty()) at_begin = false;
        if (at_begin && absl::ConsumePrefix(&rest, kMark) && !trims) at_begin = false;
        text += absl::StrReplaceAll(rest, {{kMark, " "}});
      }
    }
    return text;
  }

 private:
  struct Scratch {
    std::string well_formed, normalized;
    BpeScratch bpe;
    UnigramScratch unigram;
  };

  // Pieces that users have defined are found before anything else, the longest at a place first.
  void EncodeBpe(absl::string_view text, Scratch* scratch, std::vector<int32_t>* tokens) const {
    const PrefixTree& fixed = normalizer_.fixed();
    size_t done = 0;
    for (size_t at = 0; at < text.size() && !fixed.empty();) {
      int32_t id = -1;
      const size_t length = fixed.Begins(text[at]) ? fixed.Longest(text.substr(at), &id) : 0;
      if (length == 0) {
        at += CharacterLength(text.substr(at));
        continue;
      }
      if (done < at) bpe_->Encode(text.substr(done, at - done), &scratch->bpe, tokens);
      tokens->push_back(id);
      done = at += length;
    }
    if (done < text.size()) bpe_->Encode(text.substr(done), &scratch->bpe, tokens);
  }

  SentencePieceModel model_;
  SentencePieceNormalizer normalizer_;
  std::string name_;
  std::optional<int32_t> begin_of_document_;
  int32_t end_of_document_;
  std::unique_ptr<const BpeModel> bpe_;  // or unigram_
  std::unique_ptr<const UnigramModel> unigram_;
  mutable ScratchPool<Scratch> scratch_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> MakeSentencePieceTokenizer(
    SentencePieceModel model, std::string name, absl::string_view end_of_document) {
  const std::string end(end_of_document.empty() ? model.end_piece : end_of_document);
  std::optional<int32_t> begin_id;
  int32_t end_id = -1;
  std::vector<std::pair<std::string, int32_t>> fixed;
  for (size_t i = 0; i < model.pieces.size(); ++i) {
    const SentencePieceModel::Piece& piece = model.pieces[i];
    if (piece.text == end) end_id = static_cast<int32_t>(i);
    if (piece.text == model.begin_piece && piece.kind == Kind::kControl) {
      begin_id = static_cast<int32_t>(i);
    }
    if (piece.kind == Kind::kUserDefined) fixed.emplace_back(piece.text, static_cast<int32_t>(i));
  }
  if (end_id < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "has no piece \"", end,
        "\" to end documents with; name one of its pieces as eos_token in tokenizer_config.json"));
  }
  MILLRACE_ASSIGN_OR_RETURN(
      SentencePieceNormalizer normalizer,
      SentencePieceNormalizer::Create(model, PrefixTree::Build(std::move(fixed))));
  model.character_map.clear();
  return std::unique_ptr<Tokenizer>(std::make_unique<SentencePieceTokenizer>(
      std::move(model), std::move(normalizer), std::move(name), begin_id, end_id));
}

}  // namespace millrace
