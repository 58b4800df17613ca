// One line at the bottom of a terminal that is drawn again and again, with ordinary lines above it.
#ifndef MILLRACE_CLIENT_CLI_STATUS_LINE_H_
#define MILLRACE_CLIENT_CLI_STATUS_LINE_H_

#include <ostream>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/cli/terminal.h"

namespace millrace {

// Does nothing where the output is not a terminal.
class StatusLine {
 public:
  StatusLine(std::ostream& out, const Terminal& terminal) : out_(out), terminal_(terminal) {}
  ~StatusLine() { Clear(); }

  // Shows the segments, two spaces between them; where one does not fit, the line ends. Drawn at
  // most ten times a second.
  void Show(const std::vector<std::string>& segments);

  // Removes the line, so that something else can be printed.
  void Clear();

 private:
  std::ostream& out_;
  const Terminal terminal_;
  bool shown_ = false;
  absl::Time last_drawn_ = absl::InfinitePast();
};

// `[########--------]`, `columns` wide with its brackets.
std::string ProgressBar(double ratio, int columns, bool unicode);

}  // namespace millrace

#endif  // MILLRACE_CLIENT_CLI_STATUS_LINE_H_
