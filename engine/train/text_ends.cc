#include "engine/train/text_ends.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "engine/base/json_file.h"
#include "engine/base/status_macros.h"
#include "engine/model/gguf_file.h"
#include "nlohmann/json.hpp"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr char kEndKey[] = "eos_token_id";
constexpr const char* kGgufKeys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"};

// `value`: an id, several, or null.
absl::Status AddIds(const json& value, const std::string& path, const char* key,
                    std::vector<int32_t>* ids) {
  if (value.is_null()) return absl::OkStatus();
  for (const json& id : value.is_array() ? value : json::array({value})) {
    if (!id.is_number_integer() || id < 0 || id > INT32_MAX) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": ", key, ": ", id.dump(), " is no token id"));
    }
    ids->push_back(id.get<int32_t>());
  }
  return absl::OkStatus();
}

absl::Status ReadFolder(const fs::path& folder, std::vector<int32_t>* ids) {
  for (const char* name : {"config.json", "generation_config.json"}) {
    const std::string path = folder / name;
    std::error_code error;
    if (!fs::exists(path, error)) continue;
    MILLRACE_ASSIGN_OR_RETURN(const json config, ReadJsonFile(path));
    if (!config.is_object()) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": is no JSON object"));
    }
    MILLRACE_RETURN_IF_ERROR(AddIds(config.value(kEndKey, json()), path, kEndKey, ids));
  }
  return absl::OkStatus();
}

absl::Status ReadGguf(const std::string& path, std::vector<int32_t>* ids) {
  MILLRACE_ASSIGN_OR_RETURN(const std::shared_ptr<const GgufFile> file, GgufFile::Open(path));
  for (const char* key : kGgufKeys) {
    const GgufValue* value = file->FindValue(key);
    const json id = value != nullptr && value->whole() ? json(*value->whole()) : json();
    MILLRACE_RETURN_IF_ERROR(AddIds(id, path, key, ids));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<int32_t>> ReadTextEnds(const std::string& path,
                                                  const Tokenizer& tokenizer) {
  std::vector<int32_t> ids = {tokenizer.end_of_document()};
  std::error_code error;
  MILLRACE_RETURN_IF_ERROR(fs::is_directory(path, error) ? ReadFolder(path, &ids)
                                                         : ReadGguf(path, &ids));
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace millrace
