#include "engine/base/json_file.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/base/file.h"
#include "engine/base/status_macros.h"

namespace millrace {
namespace {

// The most arrays and objects that are open at once. Right for valid JSON; for other texts the
// parser, which does not recurse, says what is wrong.
int DepthOf(absl::string_view text) {
  int depth = 0, most = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      most = std::max(most, ++depth);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return most;
}

}  // namespace

absl::StatusOr<nlohmann::json> ParseJson(absl::string_view text) {
  if (DepthOf(text) > kMostJsonDepth) {
    return absl::InvalidArgumentError(
        absl::StrCat("is not valid JSON, or nests more than ", kMostJsonDepth, " deep"));
  }
  nlohmann::json value =
      nlohmann::json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) return absl::InvalidArgumentError("is not valid JSON");
  return value;
}

absl::StatusOr<nlohmann::json> ReadJsonFile(const std::string& path, int64_t most_bytes) {
  const auto error = [&](absl::string_view message) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", message));
  };
  std::error_code problem;
  const std::filesystem::file_status status = std::filesystem::status(path, problem);
  if (status.type() == std::filesystem::file_type::not_found) {
    return ErrnoToStatus(ENOENT, "open", path);
  }
  if (problem) return ErrnoToStatus(problem.value(), "read", path);
  if (!std::filesystem::is_regular_file(status)) return error("is no regular file");
  const uintmax_t bytes = std::filesystem::file_size(path, problem);
  if (problem) return ErrnoToStatus(problem.value(), "read", path);
  if (bytes > static_cast<uintmax_t>(most_bytes)) {
    return error(absl::StrCat("has ", bytes, " bytes; at most ", most_bytes, " are read"));
  }
  MILLRACE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  absl::StatusOr<nlohmann::json> value = ParseJson(text);
  if (!value.ok()) return error(value.status().message());
  return value;
}

}  // namespace millrace
