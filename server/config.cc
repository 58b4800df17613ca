#include "server/config.h"

#include <unistd.h>
#include <yaml-cpp/yaml.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/file.h"
#include "engine/base/status_macros.h"
#include "server/base/listen_address.h"
#include "server/base/version.h"

namespace millrace {
namespace {

absl::Status ParseCount(const std::string& text, int least, int* count) {
  int value;
  if (!absl::SimpleAtoi(text, &value) || value < least) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is not a whole number of at least ", least));
  }
  *count = value;
  return absl::OkStatus();
}

absl::Status ParseTime(const std::string& text, absl::Duration* duration) {
  absl::Duration value;
  if (!absl::ParseDuration(text, &value) || value < absl::ZeroDuration() ||
      value == absl::InfiniteDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is not a duration such as 30s, 2m or 500ms"));
  }
  *duration = value;
  return absl::OkStatus();
}

absl::Status ParsePath(const std::string& text, std::string* path) {
  std::error_code error;
  *path = std::filesystem::absolute(text, error).lexically_normal().string();
  while (path->size() > 1 && path->back() == '/') path->pop_back();
  if (text.empty() || error) return absl::InvalidArgumentError("an empty path");
  return absl::OkStatus();
}

absl::Status ParseLogLevel(const std::string& text, std::string* level) {
  for (const char* known : {"debug", "info", "warning", "error"}) {
    if (text == known) {
      *level = text;
      return absl::OkStatus();
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", text, "' is not debug, info, warning or error"));
}

absl::Status ParseText(const std::string& text, std::string* out) {
  *out = text;
  return absl::OkStatus();
}

struct Setting {
  const char* name;
  const char* help;
  absl::Status (*set)(const std::string& text, Config* config);
  // Has many values: the flag, under this name, may be repeated, and the file has a list.
  const char* each = nullptr;
  void (*clear)(Config* config) = nullptr;
};

const Setting kSettings[] = {
    {"data_dir", "Folder of jobs, datasets and the job store [$XDG_DATA_HOME/millrace/node]",
     [](const std::string& text, Config* config) { return ParsePath(text, &config->data_dir); }},
    {"listen", "Loopback address of the gRPC API; port 0 is any free one [127.0.0.1:7473]",
     [](const std::string& text, Config* config) { return ParseText(text, &config->listen); }},
    {"http_listen", "Loopback address of /metrics and /healthz; empty for none [127.0.0.1:7474]",
     [](const std::string& text, Config* config) { return ParseText(text, &config->http_listen); }},
    {"max_running_jobs", "Jobs that run at the same time [1]",
     [](const std::string& text, Config* config) {
       return ParseCount(text, 1, &config->max_running_jobs);
     }},
    {"max_queued_jobs", "Jobs that wait before more are refused [1000]",
     [](const std::string& text, Config* config) {
       return ParseCount(text, 1, &config->max_queued_jobs);
     }},
    {"max_restarts", "Restarts of a crashing job without a step of progress between [3]",
     [](const std::string& text, Config* config) {
       return ParseCount(text, 0, &config->max_restarts);
     }},
    {"max_loaded_models", "Models loaded for generation at the same time [1]",
     [](const std::string& text, Config* config) {
       return ParseCount(text, 1, &config->max_loaded_models);
     }},
    {"worker_binary", "Program that runs a job [millrace-worker beside this program]",
     [](const std::string& text, Config* config) {
       return ParsePath(text, &config->worker_binary);
     }},
    {"drain_timeout", "On SIGTERM, time for running jobs to save [30s]",
     [](const std::string& text, Config* config) {
       return ParseTime(text, &config->drain_timeout);
     }},
    {"cancel_grace", "Time for a cancelled job to end before it is killed [10s]",
     [](const std::string& text, Config* config) {
       return ParseTime(text, &config->cancel_grace);
     }},
    {"model_dirs", "Folder below which models may be registered where they lie; may be repeated",
     [](const std::string& text, Config* config) {
       return ParsePath(text, &config->model_dirs.emplace_back());
     },
     "model-dir", [](Config* config) { config->model_dirs.clear(); }},
    {"log_level", "debug, info, warning or error [info]",
     [](const std::string& text, Config* config) {
       return ParseLogLevel(text, &config->log_level);
     }},
};

// `name` is what messages call it by.
absl::Status Set(const Setting& setting, const std::string& name, const std::string& text,
                 Config* config) {
  const absl::Status status = setting.set(text, config);
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat(name, ": ", status.message()));
}

std::string FlagOf(const Setting& setting) {
  return absl::StrCat("--", setting.each != nullptr ? setting.each : setting.name);
}

const Setting* FindSetting(const std::string& name) {
  for (const Setting& setting : kSettings) {
    if (name == setting.name) return &setting;
  }
  return nullptr;
}

std::string SettingNames() {
  return absl::StrJoin(kSettings, ", ", [](std::string* out, const Setting& setting) {
    absl::StrAppend(out, setting.name);
  });
}

absl::Status ReadConfigFile(const std::string& path, Config* config) {
  MILLRACE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  YAML::Node root;
  try {
    root = YAML::Load(text);
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ":", error.mark.line + 1, ": ", error.msg));
  }
  if (root.IsNull()) return absl::OkStatus();
  if (!root.IsMap()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": must hold lines of the form key: value"));
  }
  for (const auto& entry : root) {
    const std::string key = entry.first.IsScalar() ? entry.first.Scalar() : "";
    const std::string where = absl::StrCat(path, ":", entry.first.Mark().line + 1, ": ");
    const Setting* setting = FindSetting(key);
    if (setting == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, "unknown key '", key, "'; the keys are ", SettingNames()));
    }
    if (setting->each != nullptr && entry.second.IsSequence()) {
      for (const YAML::Node& value : entry.second) {
        if (!value.IsScalar()) {
          return absl::InvalidArgumentError(absl::StrCat(where, key, ": must be a list of paths"));
        }
        MILLRACE_RETURN_IF_ERROR(Set(*setting, where + key, value.Scalar(), config));
      }
      continue;
    }
    if (!entry.second.IsScalar()) {
      return absl::InvalidArgumentError(absl::StrCat(where, key, ": must be a single value"));
    }
    MILLRACE_RETURN_IF_ERROR(Set(*setting, where + key, entry.second.Scalar(), config));
  }
  return absl::OkStatus();
}

std::string DefaultDataDir() {
  if (const char* data = std::getenv("XDG_DATA_HOME"); data != nullptr && *data == '/') {
    return absl::StrCat(data, "/millrace/node");
  }
  const char* home = std::getenv("HOME");
  return home == nullptr || *home != '/' ? "" : absl::StrCat(home, "/.local/share/millrace/node");
}

// Beside this program, where it is installed; one folder down, where it was built.
absl::StatusOr<std::string> FindWorkerBinary() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path folder = self.parent_path();
  for (const auto& candidate :
       {folder / "millrace-worker", folder / "worker" / "millrace-worker"}) {
    if (access(candidate.c_str(), X_OK) == 0) return candidate.string();
  }
  return absl::NotFoundError(absl::StrCat("worker_binary: no millrace-worker in ", folder.string(),
                                          "; install it there or give --worker_binary"));
}

absl::Status Complete(Config* config) {
  if (config->data_dir.empty()) config->data_dir = DefaultDataDir();
  if (config->data_dir.empty()) {
    return absl::InvalidArgumentError(
        "data_dir: there is no HOME to choose one in; give --data_dir");
  }
  MILLRACE_RETURN_IF_ERROR(CheckLoopbackAddress("listen", config->listen));
  if (!config->http_listen.empty()) {
    MILLRACE_RETURN_IF_ERROR(CheckLoopbackAddress("http_listen", config->http_listen));
  }
  if (config->worker_binary.empty()) {
    MILLRACE_ASSIGN_OR_RETURN(config->worker_binary, FindWorkerBinary());
  } else if (access(config->worker_binary.c_str(), X_OK) != 0) {
    return absl::NotFoundError(absl::StrCat("worker_binary: ", config->worker_binary,
                                            " is not a program that can be run"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ParsedCommandLine> ParseCommandLine(const std::vector<std::string>& arguments) {
  ParsedCommandLine parsed;
  CLI::App app("Owns the memory and the devices of this box and runs training jobs on them.",
               "millraced");
  std::string config_file;
  bool version = false;
  app.add_option("--config", config_file, "YAML file with the settings below, as key: value");
  app.add_flag("--version", version, "Print the version and end");
  std::map<std::string, std::vector<std::string>> flags;
  std::vector<std::pair<const Setting*, CLI::Option*>> options;
  for (const Setting& setting : kSettings) {
    CLI::Option* option = app.add_option(FlagOf(setting), flags[setting.name], setting.help)
                              ->expected(1)
                              ->type_size(1)
                              ->allow_extra_args(false);
    if (setting.each != nullptr) {
      option->take_all();
    } else {
      option->take_last();
    }
    options.push_back({&setting, option});
  }
  try {
    // CLI11 takes them from the back.
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::CallForHelp&) {
    parsed.print_and_end = app.help();
    return parsed;
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(error.what(), "; `millraced --help` lists the flags"));
  }
  if (version) {
    parsed.print_and_end = absl::StrCat("millraced ", kVersion, "\n");
    return parsed;
  }
  if (!config_file.empty()) {
    MILLRACE_RETURN_IF_ERROR(ReadConfigFile(config_file, &parsed.config));
  }
  for (const auto& [setting, option] : options) {
    if (option->count() == 0) continue;
    if (setting->clear != nullptr) setting->clear(&parsed.config);
    for (const std::string& value : flags[setting->name]) {
      MILLRACE_RETURN_IF_ERROR(Set(*setting, FlagOf(*setting), value, &parsed.config));
    }
  }
  MILLRACE_RETURN_IF_ERROR(Complete(&parsed.config));
  return parsed;
}

}  // namespace millrace
