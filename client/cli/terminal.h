// What the output can show, and text made safe for it.
#ifndef MILLRACE_CLIENT_CLI_TERMINAL_H_
#define MILLRACE_CLIENT_CLI_TERMINAL_H_

#include <string>

#include "absl/strings/string_view.h"

namespace millrace {

struct Terminal {
  // Output goes to a person's terminal that can redraw a line; otherwise to a file or pipe.
  bool interactive = false;
  // NO_COLOR is respected.
  bool color = false;
  // Block characters may be used.
  bool unicode = true;
  int columns = 80;
};

// From the file descriptor and the environment (TERM, NO_COLOR, LC_ALL, LC_CTYPE, LANG).
Terminal DetectTerminal(int descriptor);

// The width of the terminal now; `otherwise` when it is none.
int TerminalColumns(int descriptor, int otherwise);

enum class Style { kPlain, kBold, kDim, kGreen, kYellow, kRed };
std::string Styled(const Terminal& terminal, Style style, absl::string_view text);

// Text of others with control characters (escape sequences, carriage returns) replaced, so that it
// cannot move the cursor or hide anything. Newlines and tabs stay when `keep_lines`, and become
// spaces otherwise.
std::string Sanitize(absl::string_view text, bool keep_lines);

// Columns that UTF-8 text takes, one a character.
size_t DisplayColumns(absl::string_view text);

// Cut to `columns`, ending in `…` when something is missing.
std::string Ellipsize(absl::string_view text, size_t columns);

}  // namespace millrace

#endif  // MILLRACE_CLIENT_CLI_TERMINAL_H_
