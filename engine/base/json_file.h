// JSON from anyone: parsed in bounded memory and depth, so that whoever walks, copies or prints the
// value may recurse.
//
//   MILLRACE_ASSIGN_OR_RETURN(const nlohmann::json config, ReadJsonFile(folder + "/config.json"));
#ifndef MILLRACE_ENGINE_BASE_JSON_FILE_H_
#define MILLRACE_ENGINE_BASE_JSON_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace millrace {

// Arrays and objects inside each other.
inline constexpr int kMostJsonDepth = 64;
inline constexpr int64_t kMostJsonFileBytes = int64_t{16} << 20;

// INVALID_ARGUMENT where `text` is not valid JSON or nests deeper than kMostJsonDepth.
absl::StatusOr<nlohmann::json> ParseJson(absl::string_view text);

// The same from a file; errors name it. INVALID_ARGUMENT for what is no regular file, or above
// `most_bytes`.
absl::StatusOr<nlohmann::json> ReadJsonFile(const std::string& path,
                                            int64_t most_bytes = kMostJsonFileBytes);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_BASE_JSON_FILE_H_
