// What every command works with.
#ifndef MILLRACE_CLIENT_CLI_SESSION_H_
#define MILLRACE_CLIENT_CLI_SESSION_H_

#include <functional>
#include <istream>
#include <memory>
#include <ostream>
#include <stop_token>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/cli/format.h"
#include "client/cli/terminal.h"
#include "client/lib/connection.h"

namespace millrace {

// The world around the command; a test gives its own.
struct Environment {
  std::istream* in = nullptr;
  std::ostream* out = nullptr;
  std::ostream* error = nullptr;
  Terminal terminal;
  Terminal error_terminal;
  // Ctrl-C.
  std::stop_token stop;
  std::function<absl::Time()> now = [] { return absl::Now(); };
};

struct Session {
  Environment environment;
  OutputFormat format = OutputFormat::kTable;
  std::unique_ptr<Connection> connection;

  std::ostream& out() const { return *environment.out; }
  const Terminal& terminal() const { return environment.terminal; }
  absl::Time now() const { return environment.now(); }

  // For JSON and YAML: writes the message and returns true. False for tables.
  bool Print(const google::protobuf::Message& message) const {
    if (format == OutputFormat::kTable) return false;
    out() << (format == OutputFormat::kJson ? ToJsonLine(message) : ToYaml(message)) << std::flush;
    return true;
  }

  // One line for a person on standard error; nothing with JSON, whose readers want none.
  void Note(const std::string& text) const {
    if (format == OutputFormat::kTable) *environment.error << text << std::endl;
  }
};

}  // namespace millrace

#endif  // MILLRACE_CLIENT_CLI_SESSION_H_
