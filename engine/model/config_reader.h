// Values out of one config.json, with a list of what is wrong with them. The functions that read
// parts of a config (families.cc, rope_config.cc, layer_types.cc) share one.
#ifndef MILLRACE_ENGINE_MODEL_CONFIG_READER_H_
#define MILLRACE_ENGINE_MODEL_CONFIG_READER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/base/field_problem.h"
#include "nlohmann/json.hpp"

namespace millrace {

class ConfigReader {
 public:
  // Both must stay. `config` is an object.
  ConfigReader(const nlohmann::json& config, std::vector<FieldProblem>& problems)
      : config_(config), problems_(problems) {}

  const nlohmann::json& config() const { return config_; }
  bool has_problems() const { return !problems_.empty(); }

  // nullptr when absent or null.
  const nlohmann::json* Find(absl::string_view key) const;
  // Whether the key is there, and null.
  bool IsNull(absl::string_view key) const;

  void Complain(absl::string_view field, std::string message);
  // `least`, with a complaint, when the value is another.
  int64_t Whole(const nlohmann::json& value, absl::string_view field, int64_t least, int64_t most);
  double Real(const nlohmann::json& value, absl::string_view field, double least, double most);
  // `fallback`, with a complaint, when the value is not true or false; without, when it is absent.
  bool Switch(absl::string_view key, bool fallback);

 private:
  const nlohmann::json& config_;
  std::vector<FieldProblem>& problems_;
};

// A value for an error message, cut when long.
std::string Show(const nlohmann::json& value);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_MODEL_CONFIG_READER_H_
