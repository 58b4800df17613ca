#include "proto/job_file/text_check.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"

namespace millrace {
namespace {

constexpr size_t kMaxBytes = 1 << 20;

// Bytes of the well-formed character that `text` begins with (RFC 3629), or 0.
size_t CharacterBytes(absl::string_view text) {
  auto at = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : 0; };
  auto continues = [&](size_t i) { return (at(i) & 0xC0) == 0x80; };
  uint8_t first = at(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return continues(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    bool overlong = first == 0xE0 && at(1) < 0xA0;
    bool surrogate = first == 0xED && at(1) >= 0xA0;
    return continues(1) && continues(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    bool overlong = first == 0xF0 && at(1) < 0x90;
    bool beyond = first == 0xF4 && at(1) >= 0x90;
    return continues(1) && continues(2) && continues(3) && !overlong && !beyond ? 4 : 0;
  }
  return 0;
}

}  // namespace

absl::Status CheckText(absl::string_view text) {
  if (text.size() > kMaxBytes) {
    return absl::InvalidArgumentError(absl::StrCat("line 1: the file has ", text.size(),
                                                   " bytes; a job file has at most ", kMaxBytes));
  }
  size_t line = 1;
  for (size_t i = 0; i < text.size();) {
    size_t bytes = CharacterBytes(text.substr(i));
    if (bytes == 0 || text[i] == '\0') {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", line, ": the file is not text in UTF-8; is it a job file?"));
    }
    if (text[i] == '\n') ++line;
    i += bytes;
  }
  return absl::OkStatus();
}

bool IsUtf8(absl::string_view text) {
  while (!text.empty()) {
    const size_t bytes = CharacterBytes(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

absl::string_view TruncateUtf8(absl::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  size_t end = max_bytes;
  while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end);
}

}  // namespace millrace
