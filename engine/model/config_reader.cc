#include "engine/model/config_reader.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

namespace millrace {

using nlohmann::json;

const json* ConfigReader::Find(absl::string_view key) const {
  const auto found = config_.find(std::string(key));
  return found == config_.end() || found->is_null() ? nullptr : &*found;
}

bool ConfigReader::IsNull(absl::string_view key) const {
  const auto found = config_.find(std::string(key));
  return found != config_.end() && found->is_null();
}

void ConfigReader::Complain(absl::string_view field, std::string message) {
  problems_.push_back({std::string(field), std::move(message)});
}

int64_t ConfigReader::Whole(const json& value, absl::string_view field, int64_t least,
                            int64_t most) {
  const double number = value.is_number() ? value.get<double>() : std::nan("");
  if (number >= static_cast<double>(least) && number <= static_cast<double>(most) &&
      number == std::floor(number)) {
    return static_cast<int64_t>(number);
  }
  Complain(field, absl::StrCat(Show(value), " is not a whole number from ", least, " to ", most));
  return least;
}

double ConfigReader::Real(const json& value, absl::string_view field, double least, double most) {
  const double number = value.is_number() ? value.get<double>() : std::nan("");
  if (number >= least && number <= most) return number;
  Complain(field, absl::StrCat(Show(value), " is not a number from ", least, " to ", most));
  return least;
}

bool ConfigReader::Switch(absl::string_view key, bool fallback) {
  const json* value = Find(key);
  if (value == nullptr) return fallback;
  if (value->is_boolean()) return value->get<bool>();
  Complain(key, absl::StrCat(Show(*value), " is not true or false"));
  return fallback;
}

std::string Show(const json& value) {
  constexpr size_t kMost = 60;
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace);
  if (text.size() > kMost) text = text.substr(0, kMost) + "...";
  return text;
}

}  // namespace millrace
