// What millraced is told: flags, and a YAML file with the same names.
//
//   absl::StatusOr<ParsedCommandLine> parsed = ParseCommandLine(argc, argv);
//
// A flag goes before the file, the file before the default. Keys that are not known are refused.
#ifndef MILLRACE_SERVER_CONFIG_H_
#define MILLRACE_SERVER_CONFIG_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace millrace {

struct Config {
  // Absolute once parsed.
  std::string data_dir;
  std::string listen = "127.0.0.1:7473";
  // Empty: no HTTP port.
  std::string http_listen = "127.0.0.1:7474";
  int max_running_jobs = 1;
  int max_queued_jobs = 1000;
  int max_restarts = 3;
  // Models that are loaded for generation at the same time.
  int max_loaded_models = 1;
  // Program that runs a job.
  std::string worker_binary;
  // Time for running jobs to save before the daemon ends all the same.
  absl::Duration drain_timeout = absl::Seconds(30);
  // Time for a cancelled job to end before it is killed.
  absl::Duration cancel_grace = absl::Seconds(10);
  // Absolute. Models may be registered where they lie below these folders of the node.
  std::vector<std::string> model_dirs;
  // debug, info, warning or error.
  std::string log_level = "info";
};

struct ParsedCommandLine {
  Config config;
  // Not empty: print this and end successfully (--help, --version).
  std::string print_and_end;
};

// `arguments` without the program's name. INVALID_ARGUMENT or NOT_FOUND names the setting, its
// value and the fix.
absl::StatusOr<ParsedCommandLine> ParseCommandLine(const std::vector<std::string>& arguments);

}  // namespace millrace

#endif  // MILLRACE_SERVER_CONFIG_H_
