#include "server/blobs/blob_names.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"

namespace millrace {

std::string ProblemWithRelativePath(absl::string_view path) {
  if (path.empty()) return "is empty; give a relative path";
  if (path.size() > 1024) return "is longer than 1024 bytes; shorten it";
  if (std::any_of(path.begin(), path.end(), [](char c) { return absl::ascii_iscntrl(c); })) {
    return "has a control character; rename the file";
  }
  for (const absl::string_view part : absl::StrSplit(path, '/')) {
    if (part.empty()) return "begins or ends with / or has //; give a plain relative path";
    if (part == "." || part == "..") return "has a part . or ..; give a plain relative path";
    if (part.size() > 255) return "has a part longer than 255 bytes; shorten it";
  }
  return "";
}

std::string ProblemWithSha256(absl::string_view sha256) {
  const auto hexadecimal = [](char c) { return absl::ascii_isdigit(c) || (c >= 'a' && c <= 'f'); };
  if (sha256.size() != 64 || !std::all_of(sha256.begin(), sha256.end(), hexadecimal)) {
    return "must be 64 lower-case hexadecimal digits";
  }
  return "";
}

}  // namespace millrace
