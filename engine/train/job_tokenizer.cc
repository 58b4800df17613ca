#include "engine/train/job_tokenizer.h"

#include <filesystem>
#include <map>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/file.h"
#include "engine/base/status_macros.h"
#include "engine/data/byte_alphabet.h"
#include "engine/data/tokenizer_file.h"
#include "engine/data/unicode_text.h"
#include "engine/train/model_tokenizer.h"
#include "nlohmann/json.hpp"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr absl::string_view kByte = "byte";
constexpr char kTokenizerJson[] = "tokenizer.json";
constexpr char kTokenizerConfig[] = "tokenizer_config.json";
constexpr char kEndOfDocument[] = "<|endoftext|>";

// Files of a model directory that say how text becomes tokens, and how tokens are drawn.
constexpr const char* kFiles[] = {kTokenizerJson,
                                  "tokenizer.model",
                                  "vocab.json",
                                  "merges.txt",
                                  "added_tokens.json",
                                  kTokenizerConfig,
                                  "special_tokens_map.json",
                                  "generation_config.json",
                                  "chat_template.jinja"};
// Beside a file of a tokenizer that a job names alone.
constexpr const char* kFilesBeside[] = {kTokenizerConfig, "special_tokens_map.json"};

bool IsBytes(const TrainSpec& spec) {
  return spec.tokenizer == kByte || (spec.tokenizer.empty() && spec.model_from.empty());
}

absl::string_view FieldOf(const TrainSpec& spec) {
  return spec.tokenizer.empty() ? "model.from" : "tokenizer";
}

const std::string& NameOf(const TrainSpec& spec) {
  return spec.tokenizer.empty() ? spec.model_from : spec.tokenizer;
}

const std::string& PathOf(const TrainSpec& spec) {
  return spec.tokenizer.empty() ? spec.model_path : spec.tokenizer_path;
}

bool IsFile(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

absl::Status Write(absl::string_view content, const fs::path& to) {
  MILLRACE_ASSIGN_OR_RETURN(FileWriter writer, FileWriter::Create(to.string()));
  MILLRACE_RETURN_IF_ERROR(writer.Append(content));
  return writer.Finish();
}

absl::Status Copy(const fs::path& from, const fs::path& to) {
  MILLRACE_ASSIGN_OR_RETURN(const std::string content, ReadFile(from.string()));
  return Write(content, to);
}

// Copies the files of `source`, a model directory or a file of a tokenizer.
absl::Status CopyFiles(const std::string& source, const std::string& folder) {
  std::error_code ignored;
  if (fs::is_directory(source, ignored)) {
    for (const char* name : kFiles) {
      const fs::path from = fs::path(source) / name;
      if (IsFile(from)) MILLRACE_RETURN_IF_ERROR(Copy(from, fs::path(folder) / name));
    }
    return absl::OkStatus();
  }
  const fs::path file(source);
  if (file.extension() == ".gguf") return WriteGgufTokenizerFiles(source, folder);
  // Whatever it is called, it is read by its usual name from now on.
  const char* name = file.extension() == ".model" ? "tokenizer.model" : kTokenizerJson;
  MILLRACE_RETURN_IF_ERROR(Copy(file, fs::path(folder) / name));
  for (const char* beside : kFilesBeside) {
    const fs::path from = file.parent_path() / beside;
    if (IsFile(from)) MILLRACE_RETURN_IF_ERROR(Copy(from, fs::path(folder) / beside));
  }
  return absl::OkStatus();
}

absl::Status WriteFilesOf(const TrainSpec& spec, const std::string& checkpoint_folder,
                          const std::string& folder) {
  if (!IsBytes(spec)) {
    return CopyFiles(checkpoint_folder.empty() ? PathOf(spec) : checkpoint_folder, folder);
  }
  MILLRACE_RETURN_IF_ERROR(Write(ByteTokenizerJson(), absl::StrCat(folder, "/", kTokenizerJson)));
  const json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                       {"eos_token", kEndOfDocument},
                       {"clean_up_tokenization_spaces", false}};
  return Write(config.dump(2) + "\n", absl::StrCat(folder, "/", kTokenizerConfig));
}

}  // namespace

std::string ByteTokenizerJson() {
  json vocabulary = json::object();
  for (char32_t code_point = 1; vocabulary.size() < 256; ++code_point) {
    std::string character, byte;
    AppendCharacter(code_point, &character);
    if (AppendBytesOfToken(character, &byte)) {
      vocabulary[character] = static_cast<unsigned char>(byte[0]);
    }
  }
  vocabulary[kEndOfDocument] = 256;
  const json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", false}};
  const json tokenizer = {{"version", "1.0"},
                          {"truncation", nullptr},
                          {"padding", nullptr},
                          {"added_tokens",
                           {{{"id", 256},
                             {"content", kEndOfDocument},
                             {"single_word", false},
                             {"lstrip", false},
                             {"rstrip", false},
                             {"normalized", false},
                             {"special", true}}}},
                          {"normalizer", nullptr},
                          {"pre_tokenizer", byte_level},
                          {"post_processor", nullptr},
                          {"decoder", byte_level},
                          {"model",
                           {{"type", "BPE"},
                            {"dropout", nullptr},
                            {"unk_token", nullptr},
                            {"continuing_subword_prefix", nullptr},
                            {"end_of_word_suffix", nullptr},
                            {"fuse_unk", false},
                            {"byte_fallback", false},
                            {"ignore_merges", false},
                            {"vocab", vocabulary},
                            {"merges", json::array()}}}};
  return tokenizer.dump(2) + "\n";
}

absl::StatusOr<std::unique_ptr<Tokenizer>> MakeJobTokenizer(const TrainSpec& spec) {
  if (IsBytes(spec)) return MakeTokenizer(kByte);
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = LoadModelTokenizer(PathOf(spec));
  if (tokenizer.ok()) return tokenizer;
  const absl::string_view fix = spec.tokenizer.empty() ? "; name another one as tokenizer" : "";
  return absl::InvalidArgumentError(
      absl::StrCat(FieldOf(spec), ": the tokenizer of `", NameOf(spec),
                   "` cannot be read: ", tokenizer.status().message(), fix));
}

absl::Status KeepTokenizer(const TrainSpec& spec, const std::string& checkpoint_folder,
                           const std::string& folder) {
  std::error_code error;
  if (!checkpoint_folder.empty() && fs::is_directory(folder, error)) return absl::OkStatus();
  const std::string temporary = folder + ".writing";
  fs::remove_all(temporary, error);
  MILLRACE_RETURN_IF_ERROR(MakeFolderDurably(temporary));
  MILLRACE_RETURN_IF_ERROR(WriteFilesOf(spec, checkpoint_folder, temporary));
  MILLRACE_RETURN_IF_ERROR(SyncFolder(temporary));
  // Of an attempt that left no checkpoint.
  fs::remove_all(folder, error);
  fs::rename(temporary, folder, error);
  if (error) return ErrnoToStatus(error.value(), "rename into place", folder);
  return SyncFolder(fs::path(folder).parent_path().string());
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadKeptTokenizer(const TrainSpec& spec,
                                                             const std::string& folder) {
  if (IsBytes(spec)) return MakeTokenizer(kByte);
  return LoadTokenizer(folder);
}

}  // namespace millrace
