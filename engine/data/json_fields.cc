#include "engine/data/json_fields.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace millrace {

JsonFields::JsonFields(const nlohmann::json& object, absl::string_view where)
    : object_(object), where_(where) {
  if (!object.is_object()) {
    Keep(Problem(absl::StrCat("is no object (", object.type_name(), ")")));
  }
}

std::string JsonFields::String(const std::string& name) {
  const nlohmann::json& value = Value(name);
  if (value.is_string()) return value.get<std::string>();
  Keep(Problem(absl::StrCat("\"", name, "\" must be a string")));
  return "";
}

std::string JsonFields::String(const std::string& name, absl::string_view fallback) {
  return Value(name).is_null() ? std::string(fallback) : String(name);
}

bool JsonFields::Bool(const std::string& name, bool fallback) {
  const nlohmann::json& value = Value(name);
  if (value.is_boolean()) return value.get<bool>();
  if (!value.is_null()) Keep(Problem(absl::StrCat("\"", name, "\" must be true or false")));
  return fallback;
}

int64_t JsonFields::Integer(const std::string& name, int64_t least, int64_t most) {
  const nlohmann::json& value = Value(name);
  if (value.is_number_integer() &&
      !(value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX})) {
    const int64_t number = value.get<int64_t>();
    if (number >= least && number <= most) return number;
  }
  Keep(Problem(absl::StrCat("\"", name, "\" must be a whole number from ", least, " to ", most)));
  return least;
}

const nlohmann::json& JsonFields::Value(const std::string& name) {
  static const nlohmann::json kNull;
  read_.insert(name);
  if (!object_.is_object()) return kNull;
  const auto found = object_.find(name);
  return found == object_.end() ? kNull : *found;
}

absl::Status JsonFields::Problem(absl::string_view problem) const {
  return absl::InvalidArgumentError(absl::StrCat(where_, ": ", problem));
}

void JsonFields::Keep(absl::Status status) {
  if (status_.ok()) status_ = std::move(status);
}

absl::Status JsonFields::Finish() const {
  if (!status_.ok() || !object_.is_object()) return status_;
  for (const auto& [name, value] : object_.items()) {
    if (read_.count(name) == 0) {
      return Problem(absl::StrCat("field \"", name.substr(0, 100), "\" is not supported"));
    }
  }
  return absl::OkStatus();
}

}  // namespace millrace
