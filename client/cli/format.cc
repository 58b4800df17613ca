#include "client/cli/format.h"

#include <google/protobuf/util/json_util.h>
#include <yaml-cpp/yaml.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "client/lib/errors.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

std::string ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string json;
  auto status = google::protobuf::util::MessageToJsonString(message, &json, options);
  return status.ok() ? json : "{}";
}

void Emit(const Json& value, YAML::Emitter* out) {
  if (value.is_object()) {
    if (value.empty()) *out << YAML::Flow;
    *out << YAML::BeginMap;
    for (const auto& [key, entry] : value.items()) {
      *out << YAML::Key << key << YAML::Value;
      Emit(entry, out);
    }
    *out << YAML::EndMap;
  } else if (value.is_array()) {
    if (value.empty()) *out << YAML::Flow;
    *out << YAML::BeginSeq;
    for (const Json& entry : value) Emit(entry, out);
    *out << YAML::EndSeq;
  } else if (value.is_string()) {
    *out << YAML::DoubleQuoted << value.get<std::string>();
  } else {
    *out << value.dump();
  }
}

}  // namespace

std::string ToJsonLine(const google::protobuf::Message& message) {
  return absl::StrCat(ToJson(message), "\n");
}

std::string ToYaml(const google::protobuf::Message& message) {
  YAML::Emitter out;
  Emit(Json::parse(ToJson(message)), &out);
  // A stream of them is one file of many documents.
  return absl::StrCat("---\n", out.c_str(), "\n");
}

std::string ErrorJsonLine(const absl::Status& status) {
  Json error;
  error["error"]["code"] = absl::StatusCodeToString(status.code());
  error["error"]["reason"] = ErrorReason(status);
  error["error"]["message"] = std::string(status.message());
  return error.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace millrace
