#include "engine/train/model_tokenizer.h"

#include <filesystem>
#include <limits>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/file.h"
#include "engine/base/status_macros.h"
#include "engine/data/tokenizer_file.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

constexpr char kTokenizerJson[] = "tokenizer.json";
constexpr char kTokenizerModel[] = "tokenizer.model";
constexpr char kTokenizerConfig[] = "tokenizer_config.json";

// Takes values off the metadata of one file; the first that is of the wrong type is kept.
class MetadataReader {
 public:
  explicit MetadataReader(const GgufFile& file) : file_(file) {}

  void Read(const char* key, std::string* out) {
    Take(key, [&](const GgufValue& value) {
      const auto text = value.text();
      if (text) *out = std::string(*text);
      return text.has_value();
    });
  }
  void Read(const char* key, std::vector<std::string>* out) {
    Take(key, [&](const GgufValue& value) { return Move(value.texts(), out); });
  }
  void Read(const char* key, std::optional<bool>* out) {
    Take(key, [&](const GgufValue& value) {
      *out = value.boolean();
      return out->has_value();
    });
  }
  void Read(const char* key, std::optional<int64_t>* out) {
    Take(key, [&](const GgufValue& value) {
      *out = value.whole();
      return out->has_value();
    });
  }
  void Read(const char* key, std::vector<float>* out) {
    Take(key, [&](const GgufValue& value) {
      const auto numbers = value.reals();
      if (numbers) out->assign(numbers->begin(), numbers->end());
      return numbers.has_value();
    });
  }
  void Read(const char* key, std::vector<int32_t>* out) {
    Take(key, [&](const GgufValue& value) {
      const auto numbers = value.wholes();
      if (!numbers) return false;
      for (int64_t number : *numbers) {
        constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
        if (number < 0 || number > kMost) return false;
        out->push_back(static_cast<int32_t>(number));
      }
      return true;
    });
  }

  const absl::Status& status() const { return status_; }

 private:
  template <typename T>
  static bool Move(std::optional<T> from, T* to) {
    if (from) *to = *std::move(from);
    return from.has_value();
  }

  template <typename Function>
  void Take(const char* key, Function take) {
    const GgufValue* value = file_.FindValue(key);
    if (value == nullptr || take(*value) || !status_.ok()) return;
    status_ = absl::InvalidArgumentError(
        absl::StrCat(file_.path(), ": ", key, " is not of the type it must be"));
  }

  const GgufFile& file_;
  absl::Status status_;
};

absl::Status At(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
}

absl::StatusOr<TokenizerFiles> FilesOf(const std::string& path) {
  MILLRACE_ASSIGN_OR_RETURN(const auto file, GgufFile::Open(path));
  MILLRACE_ASSIGN_OR_RETURN(const GgufTokenizer gguf, ReadGgufTokenizer(*file));
  absl::StatusOr<TokenizerFiles> files = FilesOfGgufTokenizer(gguf);
  return files.ok() ? std::move(files) : At(path, files.status());
}

absl::Status WriteText(const fs::path& path, const std::string& text) {
  MILLRACE_ASSIGN_OR_RETURN(FileWriter writer, FileWriter::Create(path.string()));
  MILLRACE_RETURN_IF_ERROR(writer.Append(text));
  return writer.Finish();
}

bool Exists(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

GgufMetadata MetadataOf(const GgufTokenizer& gguf) {
  GgufMetadata metadata;
  const auto add = [&](absl::string_view key, GgufValue value) {
    metadata.emplace_back(absl::StrCat("tokenizer.", key), std::move(value));
  };
  const auto add_id = [&](absl::string_view key, std::optional<int64_t> id) {
    if (id) add(key, GgufValue::Uint32(static_cast<uint32_t>(*id)));
  };
  const auto add_flag = [&](absl::string_view key, std::optional<bool> flag) {
    if (flag) add(key, GgufValue::Bool(*flag));
  };
  add("ggml.model", GgufValue::String(gguf.model));
  add("ggml.pre", GgufValue::String(gguf.pre));
  add("ggml.tokens", GgufValue::Strings(gguf.tokens));
  if (!gguf.scores.empty()) add("ggml.scores", GgufValue::Float32s(gguf.scores));
  add("ggml.token_type", GgufValue::Int32s(gguf.token_types));
  if (gguf.model == "gpt2") add("ggml.merges", GgufValue::Strings(gguf.merges));
  add_id("ggml.bos_token_id", gguf.begin_id);
  add_id("ggml.eos_token_id", gguf.end_id);
  add_id("ggml.unknown_token_id", gguf.unknown_id);
  add_id("ggml.padding_token_id", gguf.padding_id);
  add_flag("ggml.add_bos_token", gguf.add_begin);
  add_flag("ggml.add_space_prefix", gguf.add_space_prefix);
  add_flag("ggml.remove_extra_whitespaces", gguf.remove_extra_whitespaces);
  if (!gguf.chat_template.empty()) add("chat_template", GgufValue::String(gguf.chat_template));
  return metadata;
}

}  // namespace

absl::StatusOr<GgufTokenizer> ReadGgufTokenizer(const GgufFile& file) {
  GgufTokenizer gguf;
  MetadataReader reader(file);
  reader.Read("general.architecture", &gguf.architecture);
  reader.Read("tokenizer.ggml.model", &gguf.model);
  reader.Read("tokenizer.ggml.pre", &gguf.pre);
  reader.Read("tokenizer.ggml.tokens", &gguf.tokens);
  reader.Read("tokenizer.ggml.scores", &gguf.scores);
  reader.Read("tokenizer.ggml.token_type", &gguf.token_types);
  reader.Read("tokenizer.ggml.merges", &gguf.merges);
  reader.Read("tokenizer.ggml.bos_token_id", &gguf.begin_id);
  reader.Read("tokenizer.ggml.eos_token_id", &gguf.end_id);
  reader.Read("tokenizer.ggml.unknown_token_id", &gguf.unknown_id);
  reader.Read("tokenizer.ggml.padding_token_id", &gguf.padding_id);
  reader.Read("tokenizer.ggml.add_bos_token", &gguf.add_begin);
  reader.Read("tokenizer.ggml.add_space_prefix", &gguf.add_space_prefix);
  reader.Read("tokenizer.ggml.remove_extra_whitespaces", &gguf.remove_extra_whitespaces);
  reader.Read("tokenizer.chat_template", &gguf.chat_template);
  MILLRACE_RETURN_IF_ERROR(reader.status());
  return gguf;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadModelTokenizer(const std::string& path) {
  if (!absl::EndsWith(path, ".gguf")) return LoadTokenizer(path);
  MILLRACE_ASSIGN_OR_RETURN(const TokenizerFiles files, FilesOf(path));
  // The name that it has once it is read from the files.
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = ParseTokenizer(
      files.tokenizer_json, NameOfTokenizerJson(files.tokenizer_json, files.end), files.end);
  return tokenizer.ok() ? std::move(tokenizer) : At(path, tokenizer.status());
}

absl::Status WriteGgufTokenizerFiles(const std::string& path, const std::string& folder) {
  MILLRACE_ASSIGN_OR_RETURN(const TokenizerFiles files, FilesOf(path));
  MILLRACE_RETURN_IF_ERROR(WriteText(fs::path(folder) / kTokenizerJson, files.tokenizer_json));
  return WriteText(fs::path(folder) / kTokenizerConfig, files.tokenizer_config_json);
}

absl::StatusOr<GgufMetadata> TokenizerMetadata(const std::string& folder, int64_t vocab_size) {
  const fs::path config_path = fs::path(folder) / kTokenizerConfig;
  std::string config;
  if (Exists(config_path)) {
    MILLRACE_ASSIGN_OR_RETURN(config, ReadFile(config_path.string()));
  }
  for (const char* name : {kTokenizerJson, kTokenizerModel}) {
    const fs::path path = fs::path(folder) / name;
    if (!Exists(path)) continue;
    MILLRACE_ASSIGN_OR_RETURN(const std::string content, ReadFile(path.string()));
    const absl::StatusOr<GgufTokenizer> gguf = GgufTokenizerOf(content, config, vocab_size);
    if (!gguf.ok()) return At(path.string(), gguf.status());
    return MetadataOf(*gguf);
  }
  return absl::NotFoundError(absl::StrCat(folder, ": has no tokenizer: neither ", kTokenizerJson,
                                          " nor ", kTokenizerModel, " is there"));
}

}  // namespace millrace
