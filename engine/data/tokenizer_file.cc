#include "engine/data/tokenizer_file.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/file.h"
#include "engine/base/json_file.h"
#include "engine/base/status_macros.h"
#include "engine/data/bpe_tokenizer.h"
#include "engine/data/json_fields.h"
#include "engine/data/post_processor.h"
#include "engine/data/sentencepiece_file.h"
#include "engine/data/sentencepiece_tokenizer.h"
#include "nlohmann/json.hpp"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr char kJsonFile[] = "tokenizer.json";
constexpr char kModelFile[] = "tokenizer.model";
constexpr char kTekkenFile[] = "tekken.json";
constexpr char kConfigFile[] = "tokenizer_config.json";
constexpr char kAddedFile[] = "added_tokens.json";
constexpr uintmax_t kMostFileBytes = uintmax_t{128} << 20;

// Tokens that end documents, where nothing says which does.
constexpr absl::string_view kUsualEnds[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"};

// The JSON object in the file `name` of `folder`; an empty one where there is no file.
absl::StatusOr<json> ReadObject(const fs::path& folder, const char* name) {
  const fs::path path = folder / name;
  std::error_code error;
  if (!fs::exists(path, error)) return json::object();
  MILLRACE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path.string()));
  absl::StatusOr<json> object = ParseJson(text);
  if (!object.ok() || !object->is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(path.string(), ": is no JSON object"));
  }
  return object;
}

// What the tokenizer_config.json `config` names as the end of a text; empty where nothing does.
std::string ConfiguredEnd(const json& config) {
  json end = config.value("eos_token", json());
  if (end.is_object()) end = end.value("content", json());
  return end.is_string() ? end.get<std::string>() : std::string();
}

// Files beside a tokenizer.model may add tokens to it, which then are in no file that is read.
absl::Status CheckNothingAdded(const fs::path& folder, int64_t vocab_size) {
  const auto check = [&](const char* file, const std::string& id, const std::string& token) {
    int64_t number = 0;
    if (!absl::SimpleAtoi(id, &number) || number < vocab_size) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        file, " adds token \"", token.substr(0, 100), "\" (", number,
        "), which is not supported beside a tokenizer.model; save the model with a tokenizer.json "
        "(transformers' AutoTokenizer makes one)"));
  };
  MILLRACE_ASSIGN_OR_RETURN(const json added, ReadObject(folder, kAddedFile));
  for (const auto& [token, id] : added.items()) {
    MILLRACE_RETURN_IF_ERROR(check(kAddedFile, id.dump(), token));
  }
  MILLRACE_ASSIGN_OR_RETURN(const json config, ReadObject(folder, kConfigFile));
  const json decoder = config.value("added_tokens_decoder", json());
  if (!decoder.is_object()) return absl::OkStatus();
  for (const auto& [id, token] : decoder.items()) {
    const json content = token.is_object() ? token.value("content", json()) : token;
    MILLRACE_RETURN_IF_ERROR(
        check(kConfigFile, id, content.is_string() ? content.get<std::string>() : ""));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Tokenizer>> ParseModelFile(absl::string_view content,
                                                          const fs::path& folder, std::string name,
                                                          bool begins_texts,
                                                          absl::string_view end_of_document) {
  MILLRACE_ASSIGN_OR_RETURN(SentencePieceModel model, ParseSentencePieceModel(content));
  if (!begins_texts) model.begin_piece.clear();
  MILLRACE_RETURN_IF_ERROR(CheckNothingAdded(folder, static_cast<int64_t>(model.pieces.size())));
  return MakeSentencePieceTokenizer(std::move(model), std::move(name), end_of_document);
}

std::string NameOf(const char* file, absl::string_view content, absl::string_view end) {
  Sha256 hash;
  hash.Update(content);
  hash.Update(end);
  return absl::StrCat(file, " sha256:", hash.Finish());
}

// The first byte of a SentencePiece model is a line feed.
bool LooksLikeJson(absl::string_view content) {
  const size_t first = content.find_first_not_of(" \t\r\n");
  return first != absl::string_view::npos && (content[first] == '{' || content[first] == '[') &&
         !absl::StartsWith(content, "\n");
}

// The tokenizer's file of a folder, or `path` itself.
absl::StatusOr<fs::path> FileOf(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return path;
  for (const char* name : {kJsonFile, kModelFile}) {
    if (fs::exists(path / name, error)) return path / name;
  }
  const bool tekken = fs::exists(path / kTekkenFile, error);
  return absl::NotFoundError(absl::StrCat(
      path.string(), ": has no tokenizer: neither ", kJsonFile, " nor ", kModelFile, " is there",
      tekken ? "; transformers makes a tokenizer.json of its tekken.json" : ""));
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
  MILLRACE_ASSIGN_OR_RETURN(parts.begin_of_document, BeginOfPostProcessor(post_processor));
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

std::string NameOfTokenizerJson(absl::string_view text, absl::string_view end_of_document) {
  return NameOf(kJsonFile, text, end_of_document);
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& path,
                                                         absl::string_view end_of_document) {
  MILLRACE_ASSIGN_OR_RETURN(const fs::path file, FileOf(path));
  std::error_code error;
  const uintmax_t bytes = fs::file_size(file, error);
  if (error) return ErrnoToStatus(error.value(), "read", file.string());
  if (bytes > kMostFileBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        file.string(), ": has ", bytes, " bytes; at most ", kMostFileBytes, " are read"));
  }
  MILLRACE_ASSIGN_OR_RETURN(const std::string content, ReadFile(file.string()));
  MILLRACE_ASSIGN_OR_RETURN(const json config, ReadObject(file.parent_path(), kConfigFile));
  std::string end(end_of_document);
  if (end.empty()) end = ConfiguredEnd(config);
  const bool is_json = file.extension() == ".json" || LooksLikeJson(content);
  std::string name = NameOf(is_json ? kJsonFile : kModelFile, content, end);
  // A tokenizer.json says itself how texts begin.
  const bool begins_texts = is_json || config.value("add_bos_token", json()) != json(false);
  if (!begins_texts) absl::StrAppend(&name, " without begin");
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer =
      is_json ? ParseTokenizer(content, std::move(name), end)
              : ParseModelFile(content, file.parent_path(), std::move(name), begins_texts, end);
  if (!tokenizer.ok()) {
    return absl::Status(tokenizer.status().code(),
                        absl::StrCat(file.string(), ": ", tokenizer.status().message()));
  }
  return tokenizer;
}

}  // namespace millrace
