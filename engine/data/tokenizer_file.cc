#include "engine/data/tokenizer_file.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/file.h"
#include "engine/base/status_macros.h"
#include "engine/data/bpe_tokenizer.h"
#include "engine/data/json_fields.h"
#include "nlohmann/json.hpp"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kMostDepth = 8;
constexpr uintmax_t kMostFileBytes = uintmax_t{128} << 20;

// Those that only put special tokens around the text, or only change offsets.
constexpr absl::string_view kPostProcessors[] = {"ByteLevel", "TemplateProcessing",
                                                 "BertProcessing", "RobertaProcessing"};
// Tokens that end documents, where nothing says which does.
constexpr absl::string_view kUsualEnds[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"};

absl::StatusOr<json> ParseJson(absl::string_view text) {
  json value = json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) return absl::InvalidArgumentError("is not valid JSON");
  return value;
}

absl::Status CheckPostProcessor(const json& value, int depth) {
  if (value.is_null()) return absl::OkStatus();
  JsonFields fields(value, "post_processor");
  const std::string type = fields.String("type");
  if (type.empty()) return fields.Finish();
  if (depth > kMostDepth) return fields.Problem("sequences lie too deep in each other");
  if (type == "Sequence") {
    const json& parts = fields.Value("processors");
    if (!parts.is_array()) return fields.Problem("a Sequence must have \"processors\"");
    for (const json& part : parts) {
      MILLRACE_RETURN_IF_ERROR(CheckPostProcessor(part, depth + 1));
    }
    return fields.Finish();
  }
  if (std::find(std::begin(kPostProcessors), std::end(kPostProcessors), type) ==
      std::end(kPostProcessors)) {
    return fields.Problem(absl::StrCat("type \"", type, "\" is not supported"));
  }
  return absl::OkStatus();
}

// What the tokenizer_config.json of `folder` names as the end of a text; empty where nothing does.
absl::StatusOr<std::string> ConfiguredEnd(const fs::path& folder) {
  const fs::path path = folder / "tokenizer_config.json";
  std::error_code error;
  if (!fs::exists(path, error)) return std::string();
  MILLRACE_ASSIGN_OR_RETURN(std::string text, ReadFile(path.string()));
  absl::StatusOr<json> config = ParseJson(text);
  if (!config.ok() || !config->is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(path.string(), ": is no JSON object"));
  }
  json end = config->value("eos_token", json());
  if (end.is_object()) end = end.value("content", json());
  return end.is_string() ? end.get<std::string>() : std::string();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> ParseTokenizer(absl::string_view text, std::string name,
                                                          absl::string_view end_of_document) {
  MILLRACE_ASSIGN_OR_RETURN(const json file, ParseJson(text));
  JsonFields fields(file, "tokenizer.json");
  const std::string version = fields.String("version", "1.0");
  for (const char* part : {"truncation", "padding"}) fields.Ignore(part);
  const json& added_tokens = fields.Value("added_tokens");
  const json& normalizer = fields.Value("normalizer");
  const json& pre_tokenizer = fields.Value("pre_tokenizer");
  const json& post_processor = fields.Value("post_processor");
  const json& decoder = fields.Value("decoder");
  const json& model = fields.Value("model");
  MILLRACE_RETURN_IF_ERROR(fields.Finish());
  if (version != "1.0") {
    return fields.Problem(absl::StrCat("version \"", version, "\" is not supported; 1.0 is"));
  }
  BpeTokenizerParts parts;
  MILLRACE_ASSIGN_OR_RETURN(parts.added_tokens, ParseAddedTokens(added_tokens));
  MILLRACE_ASSIGN_OR_RETURN(parts.normalizer, Normalizer::Parse(normalizer));
  MILLRACE_ASSIGN_OR_RETURN(parts.pre_tokenizer, PreTokenizer::Parse(pre_tokenizer));
  MILLRACE_RETURN_IF_ERROR(CheckPostProcessor(post_processor, 0));
  MILLRACE_ASSIGN_OR_RETURN(parts.decoder, TokenDecoder::Parse(decoder));
  MILLRACE_ASSIGN_OR_RETURN(parts.model, BpeModel::Parse(model, parts.pre_tokenizer.byte_level()));
  std::string end(end_of_document);
  for (absl::string_view usual : kUsualEnds) {
    if (!end.empty()) break;
    const bool added = std::any_of(parts.added_tokens.begin(), parts.added_tokens.end(),
                                   [&](const AddedToken& token) { return token.content == usual; });
    if (added || parts.model->IdOf(usual) >= 0) end = std::string(usual);
  }
  return BpeTokenizer::Create(std::move(parts), std::move(name), end);
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& path,
                                                         absl::string_view end_of_document) {
  fs::path file = path;
  std::error_code error;
  if (fs::is_directory(file, error)) file /= "tokenizer.json";
  const uintmax_t bytes = fs::file_size(file, error);
  if (error) return ErrnoToStatus(error.value(), "read", file.string());
  if (bytes > kMostFileBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        file.string(), ": has ", bytes, " bytes; at most ", kMostFileBytes, " are read"));
  }
  MILLRACE_ASSIGN_OR_RETURN(const std::string text, ReadFile(file.string()));
  std::string end(end_of_document);
  if (end.empty()) {
    MILLRACE_ASSIGN_OR_RETURN(end, ConfiguredEnd(file.parent_path()));
  }
  Sha256 hash;
  hash.Update(text);
  hash.Update(end);
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer =
      ParseTokenizer(text, absl::StrCat("tokenizer.json sha256:", hash.Finish()), end);
  if (!tokenizer.ok()) {
    return absl::Status(tokenizer.status().code(),
                        absl::StrCat(file.string(), ": ", tokenizer.status().message()));
  }
  return tokenizer;
}

}  // namespace millrace
