#include "proto/job_file/message_writer.h"

#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <map>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/struct.pb.h"
#include "proto/job_file/fields.h"
#include "proto/job_file/scalars.h"

namespace millrace {
namespace {

using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::google::protobuf::Reflection;

// Text that every YAML reader takes for a string when it stands without quotes.
bool IsPlainString(const std::string& text) {
  static const char* const kWords[] = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"};
  if (text.empty() || !absl::ascii_isalpha(text[0])) return false;
  for (char c : text) {
    if (!absl::ascii_isalnum(c) && !absl::StrContains("_-./", absl::string_view(&c, 1))) {
      return false;
    }
  }
  for (const char* word : kWords) {
    if (absl::EqualsIgnoreCase(text, word)) return false;
  }
  return true;
}

class Writer {
 public:
  std::string Write(const Message& message) {
    WriteMessage(message);
    return std::string(out_.c_str()) + "\n";
  }

 private:
  void WriteString(const std::string& text) {
    if (!IsPlainString(text)) out_ << YAML::DoubleQuoted;
    out_ << text;
  }

  void WriteMessage(const Message& message) {
    if (const auto* any = dynamic_cast<const google::protobuf::Struct*>(&message)) {
      WriteStruct(*any);
      return;
    }
    std::vector<const FieldDescriptor*> fields;
    message.GetReflection()->ListFields(message, &fields);
    if (fields.empty()) out_ << YAML::Flow;
    out_ << YAML::BeginMap;
    for (const FieldDescriptor* field : fields) {
      out_ << YAML::Key << YamlKey(*field) << YAML::Value;
      if (field->is_repeated()) {
        WriteList(message, field);
      } else {
        WriteField(message, field, -1);
      }
    }
    out_ << YAML::EndMap;
  }

  void WriteList(const Message& message, const FieldDescriptor* field) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) out_ << YAML::Flow;
    out_ << YAML::BeginSeq;
    for (int i = 0; i < message.GetReflection()->FieldSize(message, field); ++i) {
      WriteField(message, field, i);
    }
    out_ << YAML::EndSeq;
  }

  // The value of a field, or of one entry of a repeated field when `i` is not negative.
  void WriteField(const Message& message, const FieldDescriptor* field, int i) {
    const Reflection& r = *message.GetReflection();
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE:
        WriteMessage(i < 0 ? r.GetMessage(message, field)
                           : r.GetRepeatedMessage(message, field, i));
        break;
      case FieldDescriptor::CPPTYPE_STRING:
        WriteString(i < 0 ? r.GetString(message, field) : r.GetRepeatedString(message, field, i));
        break;
      case FieldDescriptor::CPPTYPE_BOOL:
        out_ << (i < 0 ? r.GetBool(message, field) : r.GetRepeatedBool(message, field, i));
        break;
      case FieldDescriptor::CPPTYPE_ENUM:
        out_ << (i < 0 ? r.GetEnum(message, field) : r.GetRepeatedEnum(message, field, i))->name();
        break;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        out_ << FormatNumber(i < 0 ? r.GetDouble(message, field)
                                   : r.GetRepeatedDouble(message, field, i));
        break;
      case FieldDescriptor::CPPTYPE_FLOAT:
        out_ << FormatNumber(i < 0 ? r.GetFloat(message, field)
                                   : r.GetRepeatedFloat(message, field, i));
        break;
      case FieldDescriptor::CPPTYPE_INT32:
        out_ << (i < 0 ? r.GetInt32(message, field) : r.GetRepeatedInt32(message, field, i));
        break;
      case FieldDescriptor::CPPTYPE_UINT32:
        out_ << (i < 0 ? r.GetUInt32(message, field) : r.GetRepeatedUInt32(message, field, i));
        break;
      case FieldDescriptor::CPPTYPE_UINT64:
        out_ << (i < 0 ? r.GetUInt64(message, field) : r.GetRepeatedUInt64(message, field, i));
        break;
      case FieldDescriptor::CPPTYPE_INT64: {
        int64_t value = i < 0 ? r.GetInt64(message, field) : r.GetRepeatedInt64(message, field, i);
        if (IsByteSize(*field)) {
          out_ << FormatByteSize(value);
        } else {
          out_ << value;
        }
        break;
      }
    }
  }

  void WriteStruct(const google::protobuf::Struct& any) {
    if (any.fields().empty()) out_ << YAML::Flow;
    out_ << YAML::BeginMap;
    // A protobuf map has no order of its own.
    std::map<std::string, const google::protobuf::Value*> sorted;
    for (const auto& [key, value] : any.fields()) sorted.emplace(key, &value);
    for (const auto& [key, value] : sorted) {
      out_ << YAML::Key;
      WriteString(key);
      out_ << YAML::Value;
      WriteValue(*value);
    }
    out_ << YAML::EndMap;
  }

  void WriteValue(const google::protobuf::Value& value) {
    switch (value.kind_case()) {
      case google::protobuf::Value::kNumberValue:
        out_ << FormatNumber(value.number_value());
        break;
      case google::protobuf::Value::kStringValue:
        WriteString(value.string_value());
        break;
      case google::protobuf::Value::kBoolValue:
        out_ << value.bool_value();
        break;
      case google::protobuf::Value::kStructValue:
        WriteStruct(value.struct_value());
        break;
      case google::protobuf::Value::kListValue:
        out_ << YAML::Flow << YAML::BeginSeq;
        for (const auto& entry : value.list_value().values()) WriteValue(entry);
        out_ << YAML::EndSeq;
        break;
      case google::protobuf::Value::kNullValue:
      case google::protobuf::Value::KIND_NOT_SET:
        out_ << YAML::Null;
        break;
    }
  }

  YAML::Emitter out_;
};

}  // namespace

std::string WriteYamlMessage(const Message& message) { return Writer().Write(message); }

}  // namespace millrace
