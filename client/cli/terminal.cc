#include "client/cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace millrace {
namespace {

// Nobody redraws a line in less.
constexpr int kMinColumns = 24;

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Terminals speak UTF-8 today, also where no locale is set; only a locale that names another
// character set says otherwise.
bool SpeaksUnicode() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    std::string locale = absl::AsciiStrToLower(Environment(name));
    if (locale.empty()) continue;
    size_t dot = locale.find('.');
    return dot == std::string::npos || absl::StrContains(locale.substr(dot), "utf");
  }
  return Environment("TERM") != "linux";
}

}  // namespace

int TerminalColumns(int descriptor, int otherwise) {
  winsize size = {};
  if (ioctl(descriptor, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return otherwise;
  return size.ws_col;
}

Terminal DetectTerminal(int descriptor) {
  Terminal terminal;
  std::string term = Environment("TERM");
  bool smart = isatty(descriptor) != 0 && !term.empty() && term != "dumb";
  terminal.columns = TerminalColumns(descriptor, 80);
  terminal.interactive = smart && terminal.columns >= kMinColumns;
  terminal.color = smart && Environment("NO_COLOR").empty();
  terminal.unicode = SpeaksUnicode();
  return terminal;
}

std::string Styled(const Terminal& terminal, Style style, absl::string_view text) {
  static const char* const kCodes[] = {"", "1", "2", "32", "33", "31"};
  if (!terminal.color || style == Style::kPlain || text.empty()) return std::string(text);
  return absl::StrCat("\x1b[", kCodes[static_cast<int>(style)], "m", text, "\x1b[0m");
}

std::string Sanitize(absl::string_view text, bool keep_lines) {
  std::string safe;
  safe.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    uint8_t c = static_cast<uint8_t>(text[i]);
    // U+0080 to U+009F are control characters too.
    bool c1 = c == 0xC2 && i + 1 < text.size() && static_cast<uint8_t>(text[i + 1]) < 0xA0;
    if (c == '\n' || c == '\t') {
      safe += keep_lines ? text[i] : ' ';
    } else if (c < 0x20 || c == 0x7F) {
      safe += '?';
    } else if (c1) {
      safe += '?';
      ++i;
    } else {
      safe += text[i];
    }
  }
  return safe;
}

size_t DisplayColumns(absl::string_view text) {
  size_t columns = 0;
  for (char c : text) columns += (static_cast<uint8_t>(c) & 0xC0) != 0x80;
  return columns;
}

std::string Ellipsize(absl::string_view text, size_t columns) {
  if (DisplayColumns(text) <= columns) return std::string(text);
  if (columns == 0) return "";
  size_t end = 0;
  for (size_t seen = 0; end < text.size(); ++end) {
    if ((static_cast<uint8_t>(text[end]) & 0xC0) != 0x80 && ++seen == columns) break;
  }
  return absl::StrCat(text.substr(0, end), "…");
}

}  // namespace millrace
