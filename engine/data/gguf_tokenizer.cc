#include "engine/data/gguf_tokenizer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/base/status_macros.h"
#include "engine/data/byte_pieces.h"
#include "engine/data/gguf_pre_tokenizers.h"
#include "engine/data/piece_merges.h"
#include "engine/data/sentencepiece_file.h"
#include "engine/data/unicode_text.h"
#include "nlohmann/json.hpp"

namespace millrace {
namespace {

using nlohmann::json;
using Kind = SentencePieceModel::Kind;

constexpr char kMark[] = "\xe2\x96\x81";  // ▁
// All ways to cut a piece in two are looked at.
constexpr size_t kMostPieceBytes = 1024;

absl::Status Problem(absl::string_view key, absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat("tokenizer.ggml.", key, ": ", problem));
}

Kind KindOf(const GgufTokenizer& gguf, size_t id) {
  return gguf.token_types.empty() ? Kind::kNormal : static_cast<Kind>(gguf.token_types[id]);
}

// Gemma's files have runs of spaces as they are, found before all else, where others have runs of
// "▁", and scores that do not follow the order of merges, which is that of the tokens.
GgufTokenizer Respelled(GgufTokenizer gguf) {
  if (!absl::StartsWith(gguf.architecture, "gemma") || gguf.model != "llama") return gguf;
  gguf.scores.clear();
  for (size_t id = 0; id < gguf.tokens.size(); ++id) {
    gguf.scores.push_back(-static_cast<float>(id));
    std::string& token = gguf.tokens[id];
    if (token.empty() || token.find_first_not_of(' ') != std::string::npos) continue;
    token = absl::StrReplaceAll(token, {{" ", kMark}});
    if (id < gguf.token_types.size()) gguf.token_types[id] = static_cast<int32_t>(Kind::kNormal);
  }
  return gguf;
}

absl::Status CheckArrays(const GgufTokenizer& gguf) {
  if (gguf.tokens.empty()) return Problem("tokens", "is missing or empty");
  const auto has = [&](size_t size) { return size == 0 || size == gguf.tokens.size(); };
  if (!has(gguf.token_types.size())) {
    return Problem("token_type", absl::StrCat("has ", gguf.token_types.size(), " entries for ",
                                              gguf.tokens.size(), " tokens"));
  }
  if (!has(gguf.scores.size())) {
    return Problem("scores", absl::StrCat("has ", gguf.scores.size(), " entries for ",
                                          gguf.tokens.size(), " tokens"));
  }
  for (int32_t type : gguf.token_types) {
    if (type < 1 || type > 6) return Problem("token_type", absl::StrCat(type, " is not known"));
  }
  for (float score : gguf.scores) {
    if (!std::isfinite(score)) return Problem("scores", "has one that is no number");
  }
  std::string storage;
  for (const std::string& token : gguf.tokens) {
    if (WellFormed(token, &storage).data() != token.data()) {
      return Problem("tokens", "has one that is not UTF-8");
    }
  }
  return absl::OkStatus();
}

// Tokens with their ids, but for those that are unused.
absl::StatusOr<json> VocabularyOf(const GgufTokenizer& gguf) {
  json vocabulary = json::object();
  for (size_t id = 0; id < gguf.tokens.size(); ++id) {
    if (KindOf(gguf, id) == Kind::kUnused || gguf.tokens[id].empty()) continue;
    const auto [at, added] = vocabulary.emplace(gguf.tokens[id], id);
    if (!added) {
      return Problem("tokens", absl::StrCat(at->dump(), " and ", id, " are both \"",
                                            gguf.tokens[id].substr(0, 100), "\""));
    }
  }
  return vocabulary;
}

json AddedTokensOf(const GgufTokenizer& gguf, bool characters) {
  json added = json::array();
  for (size_t id = 0; id < gguf.tokens.size(); ++id) {
    const Kind kind = KindOf(gguf, id);
    const bool special = kind == Kind::kControl || kind == Kind::kUnknown;
    if ((!special && kind != Kind::kUserDefined) || gguf.tokens[id].empty()) continue;
    added.push_back({{"id", id},
                     {"content", gguf.tokens[id]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     // What is written with ▁ is found where spaces have become that.
                     {"normalized", characters && absl::StrContains(gguf.tokens[id], kMark)},
                     {"special", special}});
  }
  return added;
}

// The text of the token with the id, empty for none.
absl::StatusOr<std::string> TokenAt(const GgufTokenizer& gguf, const char* key,
                                    std::optional<int64_t> id) {
  if (!id) return std::string();
  if (*id < 0 || *id >= static_cast<int64_t>(gguf.tokens.size())) {
    return Problem(key, absl::StrCat(*id, " is no token; there are ", gguf.tokens.size()));
  }
  return gguf.tokens[static_cast<size_t>(*id)];
}

json Model() {
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", nullptr},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", false},
          {"byte_fallback", false},
          {"ignore_merges", false}};
}

// Fills in what a byte-level tokenizer has besides its vocabulary.
absl::Status AddByteLevel(const GgufTokenizer& gguf, json* file) {
  const GgufPreTokenizer* pre = FindGgufPreTokenizer(gguf.pre);
  if (pre == nullptr) {
    return Problem(
        "pre",
        absl::StrCat("\"", gguf.pre, "\" is not supported; these are: ", GgufPreTokenizerNames()));
  }
  (*file)["normalizer"] = NormalizerOf(*pre);
  (*file)["pre_tokenizer"] = PreTokenizerOf(*pre);
  (*file)["decoder"] = {{"type", "ByteLevel"},
                        {"add_prefix_space", true},
                        {"trim_offsets", true},
                        {"use_regex", true}};
  (*file)["model"]["ignore_merges"] = pre->ignore_merges;
  (*file)["model"]["merges"] = gguf.merges;
  return absl::OkStatus();
}

absl::Status AddPieces(const GgufTokenizer& gguf, json* file) {
  if (gguf.remove_extra_whitespaces.value_or(false)) {
    return Problem("remove_extra_whitespaces", "true is not supported");
  }
  if (gguf.scores.empty()) return Problem("scores", "is missing");
  json& model = (*file)["model"];
  std::vector<ScoredPiece> pieces;
  int bytes = 0;
  for (size_t id = 0; id < gguf.tokens.size(); ++id) {
    const Kind kind = KindOf(gguf, id);
    bytes += kind == Kind::kByte && ByteOfPiece(gguf.tokens[id]) >= 0;
    if (kind == Kind::kUnknown) model["unk_token"] = gguf.tokens[id];
    if (kind == Kind::kNormal && !gguf.tokens[id].empty()) {
      if (gguf.tokens[id].size() > kMostPieceBytes) {
        return Problem("tokens", absl::StrCat(id, " has more than ", kMostPieceBytes, " bytes"));
      }
      pieces.push_back({gguf.tokens[id], gguf.scores[id], static_cast<int32_t>(id)});
    }
  }
  if (bytes != 256 && bytes != 0) {
    return Problem("token_type", absl::StrCat("there are tokens for ", bytes, " of 256 bytes"));
  }
  model["fuse_unk"] = true;
  model["byte_fallback"] = bytes == 256;
  json& merges = model["merges"] = json::array();
  auto made = MergesOfPieces(std::move(pieces));
  if (!made.ok()) return Problem("tokens", made.status().message());
  for (auto& [left, right] : *made) {
    merges.push_back({std::move(left), std::move(right)});
  }
  const bool prefix = gguf.add_space_prefix.value_or(true);
  json steps = json::array();
  if (prefix) steps.push_back({{"type", "Prepend"}, {"prepend", kMark}});
  steps.push_back({{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kMark}});
  (*file)["normalizer"] = {{"type", "Sequence"}, {"normalizers", std::move(steps)}};
  json decoders = {{{"type", "Replace"}, {"pattern", {{"String", kMark}}}, {"content", " "}},
                   {{"type", "ByteFallback"}},
                   {{"type", "Fuse"}}};
  if (prefix) {
    decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  (*file)["decoder"] = {{"type", "Sequence"}, {"decoders", std::move(decoders)}};
  return absl::OkStatus();
}

std::string Text(const json& value, int indent) {
  return value.dump(indent, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace) + "\n";
}

// Puts the begin before the text where add_special_tokens asks for it.
json PostProcessorOf(const std::string& begin, int64_t id) {
  const json special = {{"SpecialToken", {{"id", begin}, {"type_id", 0}}}};
  const auto sequence = [](const char* name, int type) {
    return json{{"Sequence", {{"id", name}, {"type_id", type}}}};
  };
  return {{"type", "TemplateProcessing"},
          {"single", {special, sequence("A", 0)}},
          {"pair", {special, sequence("A", 0), special, sequence("B", 1)}},
          {"special_tokens", {{begin, {{"id", begin}, {"ids", {id}}, {"tokens", {begin}}}}}}};
}

}  // namespace

absl::StatusOr<TokenizerFiles> FilesOfGgufTokenizer(const GgufTokenizer& original) {
  const GgufTokenizer gguf = Respelled(original);
  if (gguf.model != "gpt2" && gguf.model != "llama") {
    return Problem("model",
                   gguf.model.empty()
                       ? "is missing"
                       : absl::StrCat("\"", gguf.model, "\" is not supported; gpt2 and llama are"));
  }
  MILLRACE_RETURN_IF_ERROR(CheckArrays(gguf));
  const bool characters = gguf.model == "llama";
  TokenizerFiles files;
  json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                 {"clean_up_tokenization_spaces", false}};
  struct Named {
    const char *key, *name;
    std::optional<int64_t> id;
  };
  for (const auto& [key, name, id] : {Named{"bos_token_id", "bos_token", gguf.begin_id},
                                      Named{"eos_token_id", "eos_token", gguf.end_id},
                                      Named{"unknown_token_id", "unk_token", gguf.unknown_id},
                                      Named{"padding_token_id", "pad_token", gguf.padding_id}}) {
    MILLRACE_ASSIGN_OR_RETURN(const std::string token, TokenAt(gguf, key, id));
    if (!token.empty()) config[name] = token;
  }
  if (!config.contains("eos_token")) return Problem("eos_token_id", "is missing");
  files.end = config["eos_token"].get<std::string>();
  if (!gguf.chat_template.empty()) config["chat_template"] = gguf.chat_template;

  json file = {{"version", "1.0"},      {"truncation", nullptr},    {"padding", nullptr},
               {"normalizer", nullptr}, {"pre_tokenizer", nullptr}, {"post_processor", nullptr},
               {"decoder", nullptr},    {"model", Model()}};
  file["added_tokens"] = AddedTokensOf(gguf, characters);
  if (gguf.add_begin.value_or(characters) && config.contains("bos_token")) {
    file["post_processor"] = PostProcessorOf(config["bos_token"], *gguf.begin_id);
  }
  MILLRACE_ASSIGN_OR_RETURN(file["model"]["vocab"], VocabularyOf(gguf));
  MILLRACE_RETURN_IF_ERROR(characters ? AddPieces(gguf, &file) : AddByteLevel(gguf, &file));
  files.tokenizer_json = Text(file, -1);
  files.tokenizer_config_json = Text(config, 2);
  return files;
}

}  // namespace millrace
