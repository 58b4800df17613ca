#include "proto/job_file/message_reader.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "proto/job_file/fields.h"
#include "proto/job_file/scalars.h"
#include "proto/job_file/text_check.h"

namespace millrace {
namespace {

using ::google::protobuf::Descriptor;
using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::google::protobuf::Reflection;

constexpr size_t kMaxProblems = 20;
// A message as deep as this stays below protobuf's own limit when it is parsed again.
constexpr int kMaxDepth = 20;
// What the file may grow to when its aliases are written out.
constexpr size_t kMaxExpandedBytes = 4 << 20;
constexpr size_t kNodeBytes = 64;
constexpr size_t kMaxStructFileBytes = 1 << 20;
// From here on a double no longer holds every whole number.
constexpr double kMaxExactDouble = 9007199254740992.0;

bool IsStruct(const Descriptor& type) {
  return type.full_name() == google::protobuf::Struct::descriptor()->full_name();
}

// A scalar that was written in quotes, or with the tag of a string.
bool IsQuoted(const YAML::Node& node) {
  return node.Tag() == "!" || node.Tag() == "tag:yaml.org,2002:str";
}

std::string Expected(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return "a mapping (`key: value`)";
    case FieldDescriptor::CPPTYPE_STRING:
      return "text";
    case FieldDescriptor::CPPTYPE_BOOL:
      return "true or false";
    case FieldDescriptor::CPPTYPE_DOUBLE:
    case FieldDescriptor::CPPTYPE_FLOAT:
      return "a number";
    case FieldDescriptor::CPPTYPE_ENUM: {
      std::vector<std::string> names;
      for (int i = 0; i < field.enum_type()->value_count(); ++i) {
        names.push_back(field.enum_type()->value(i)->name());
      }
      return absl::StrCat("one of ", absl::StrJoin(names, ", "));
    }
    default:
      return IsByteSize(field) ? "a size such as 512MiB or 2GiB" : "a whole number";
  }
}

std::string Quote(const std::string& value) {
  constexpr size_t kShown = 40;
  std::string shown = absl::Utf8SafeCHexEscape(TruncateUtf8(value, kShown));
  return absl::StrCat("\"", shown, value.size() > kShown ? "…" : "", "\"");
}

class Reader {
 public:
  Reader(const Descriptor* root, std::string folder) : folder_(std::move(folder)), root_(root) {}

  void Read(const YAML::Node& node, Message* message) {
    if (node.IsMap()) {
      ReadMessage(node, "", message, 1);
    } else {
      Add(node, "",
          absl::StrCat("is ", node.IsNull() ? "empty" : "not a mapping",
                       "; expected lines of the form `key: value`"));
    }
  }

  absl::Status Finish() {
    if (problems_.empty()) return absl::OkStatus();
    std::stable_sort(problems_.begin(), problems_.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<std::string> lines;
    for (const auto& [line, text] : problems_) {
      if (lines.size() == kMaxProblems) break;
      lines.push_back(text);
    }
    if (problems_.size() > kMaxProblems) {
      lines.push_back(absl::StrCat("and ", problems_.size() - kMaxProblems, " more"));
    }
    return absl::InvalidArgumentError(absl::StrJoin(lines, "\n"));
  }

 private:
  void Add(const YAML::Node& node, const std::string& path, const std::string& what) {
    int line = node.Mark().line;
    // `train.seed: "x" is …`, but for the file as a whole `the file is …`.
    problems_.emplace_back(line, absl::StrCat("line ", line + 1, ": ",
                                              path.empty() ? "the file " : path + ": ", what));
  }

  // False, having said so once, when the node is too deep or the file too large with its aliases
  // written out.
  bool Enter(const YAML::Node& node, const std::string& path, int depth) {
    if (exhausted_) return false;
    expanded_bytes_ += kNodeBytes + (node.IsScalar() ? node.Scalar().size() : 0);
    if (expanded_bytes_ > kMaxExpandedBytes) {
      exhausted_ = true;
      Add(node, path, "is too large once its aliases (`*name`) are written out");
      return false;
    }
    if (depth > kMaxDepth) {
      Add(node, path, absl::StrCat("is nested more than ", kMaxDepth, " levels deep"));
      return false;
    }
    const std::string& tag = node.Tag();
    if (tag.size() > 1 && !absl::StartsWith(tag, "tag:yaml.org,2002:")) {
      Add(node, path,
          absl::StrCat("has the tag ", Quote(tag), ", which means nothing here; drop it"));
      return false;
    }
    return true;
  }

  // The key's text, or false having said what is wrong with it.
  bool ReadKey(const YAML::Node& key, const std::string& path, std::set<std::string>* seen,
               std::string* name) {
    if (!key.IsScalar()) {
      Add(key, path, "has a key that is not text");
      return false;
    }
    *name = key.Scalar();
    if (!seen->insert(*name).second) {
      Add(key, Join(path, *name), "is given twice; keep one");
      return false;
    }
    return true;
  }

  static std::string Join(const std::string& path, const std::string& name) {
    std::string shown = absl::Utf8SafeCHexEscape(TruncateUtf8(name, 64));
    return path.empty() ? shown : absl::StrCat(path, ".", shown);
  }

  void ReadMessage(const YAML::Node& node, const std::string& path, Message* message, int depth) {
    if (IsStruct(*message->GetDescriptor()) && node.IsScalar()) {
      ReadStructFile(node, path, static_cast<google::protobuf::Struct*>(message));
      return;
    }
    if (!Enter(node, path, depth)) return;
    if (IsStruct(*message->GetDescriptor())) {
      // Through the generated type where it is one, so that no second copy of Struct's rules is
      // made.
      ReadStruct(node, path, static_cast<google::protobuf::Struct*>(message), depth);
      return;
    }
    std::map<std::string, const FieldDescriptor*> fields;
    for (int i = 0; i < message->GetDescriptor()->field_count(); ++i) {
      const FieldDescriptor* field = message->GetDescriptor()->field(i);
      fields.emplace(YamlKey(*field), field);
    }
    std::set<std::string> seen;
    for (const auto& entry : node) {
      std::string name;
      if (!ReadKey(entry.first, path, &seen, &name)) continue;
      auto field = fields.find(name);
      if (field == fields.end()) {
        Add(entry.first, Join(path, name), UnknownKey(path, name, *message->GetDescriptor()));
      } else {
        ReadField(entry.second, entry.first, Join(path, name), field->second, message, depth + 1);
      }
    }
  }

  std::string UnknownKey(const std::string& path, const std::string& name, const Descriptor& type) {
    std::vector<std::string> names;
    for (int i = 0; i < type.field_count(); ++i) names.push_back(YamlKey(*type.field(i)));
    std::string near = NearestName(name, names);
    std::string suggestion = near.empty() ? FindElsewhere(name, *root_, "", 1) : Join(path, near);
    if (!suggestion.empty()) {
      return absl::StrCat("unknown key; did you mean ", suggestion, "?");
    }
    return absl::StrCat("unknown key; expected one of ", absl::StrJoin(names, ", "));
  }

  // The path of a field of exactly this name anywhere below `type`.
  static std::string FindElsewhere(const std::string& name, const Descriptor& type,
                                   const std::string& path, int depth) {
    if (depth > kMaxDepth || IsStruct(type)) return "";
    for (int i = 0; i < type.field_count(); ++i) {
      const FieldDescriptor& field = *type.field(i);
      std::string field_path = Join(path, YamlKey(field));
      if (YamlKey(field) == name) return field_path;
      if (field.message_type() == nullptr || field.is_repeated()) continue;
      std::string found = FindElsewhere(name, *field.message_type(), field_path, depth + 1);
      if (!found.empty()) return found;
    }
    return "";
  }

  void ReadField(const YAML::Node& node, const YAML::Node& key, const std::string& path,
                 const FieldDescriptor* field, Message* message, int depth) {
    if (node.IsNull()) {
      Add(key, path,
          absl::StrCat("is empty; expected ", field->is_repeated() ? "a list" : Expected(*field),
                       " (or drop the line)"));
      return;
    }
    if (!field->is_repeated()) {
      ReadOne(node, path, field, message, depth);
      return;
    }
    if (!node.IsSequence()) {
      Add(node, path, absl::StrCat(Describe(node), "; expected a list (`[a, b]`)"));
      return;
    }
    if (!Enter(node, path, depth)) return;
    int i = 0;
    for (const YAML::Node& entry : node) {
      ReadOne(entry, absl::StrCat(path, "[", i++, "]"), field, message, depth + 1);
    }
  }

  static std::string Describe(const YAML::Node& node) {
    if (node.IsMap()) return "is a mapping";
    if (node.IsSequence()) return "is a list";
    if (node.IsNull()) return "is empty";
    return absl::StrCat(Quote(node.Scalar()), " is a single value");
  }

  // Sets the field, or adds to it when it is repeated.
  void ReadOne(const YAML::Node& node, const std::string& path, const FieldDescriptor* field,
               Message* message, int depth) {
    const Reflection& r = *message->GetReflection();
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      const bool file = IsStruct(*field->message_type()) && node.IsScalar();
      if (!node.IsMap() && !file) {
        Add(node, path, absl::StrCat(Describe(node), "; expected ", Expected(*field)));
        return;
      }
      ReadMessage(
          node, path,
          field->is_repeated() ? r.AddMessage(message, field) : r.MutableMessage(message, field),
          depth);
      return;
    }
    if (!node.IsScalar()) {
      Add(node, path, absl::StrCat(Describe(node), "; expected ", Expected(*field)));
      return;
    }
    if (!Enter(node, path, depth)) return;
    absl::Status status = SetScalar(node, field, message);
    if (!status.ok()) {
      Add(node, path, absl::StrCat(Quote(node.Scalar()), " ", status.message()));
    }
  }

  static absl::Status SetScalar(const YAML::Node& node, const FieldDescriptor* field,
                                Message* message) {
    const std::string& text = node.Scalar();
    const Reflection& r = *message->GetReflection();
    bool repeated = field->is_repeated();
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      repeated ? r.AddString(message, field, text) : r.SetString(message, field, text);
      return absl::OkStatus();
    }
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
      const auto* value = field->enum_type()->FindValueByName(text);
      if (value == nullptr) {
        return absl::InvalidArgumentError(absl::StrCat("is not ", Expected(*field)));
      }
      repeated ? r.AddEnum(message, field, value) : r.SetEnum(message, field, value);
      return absl::OkStatus();
    }
    if (IsQuoted(node) && !IsByteSize(*field)) {
      return absl::InvalidArgumentError(
          absl::StrCat("is text; expected ", Expected(*field), " without quotes"));
    }
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_BOOL: {
        if (!absl::EqualsIgnoreCase(text, "true") && !absl::EqualsIgnoreCase(text, "false")) {
          return absl::InvalidArgumentError("is not true or false");
        }
        bool value = absl::EqualsIgnoreCase(text, "true");
        repeated ? r.AddBool(message, field, value) : r.SetBool(message, field, value);
        return absl::OkStatus();
      }
      case FieldDescriptor::CPPTYPE_DOUBLE:
      case FieldDescriptor::CPPTYPE_FLOAT: {
        absl::StatusOr<double> value = ParseNumber(text);
        if (!value.ok()) return value.status();
        if (field->cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) {
          repeated ? r.AddDouble(message, field, *value) : r.SetDouble(message, field, *value);
        } else {
          repeated ? r.AddFloat(message, field, *value) : r.SetFloat(message, field, *value);
        }
        return absl::OkStatus();
      }
      default:
        return SetInteger(text, field, message);
    }
  }

  static absl::Status SetInteger(const std::string& text, const FieldDescriptor* field,
                                 Message* message) {
    const Reflection& r = *message->GetReflection();
    bool repeated = field->is_repeated();
    int64_t lowest = std::numeric_limits<int64_t>::min();
    int64_t highest = std::numeric_limits<int64_t>::max();
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT32) {
      lowest = std::numeric_limits<int32_t>::min();
      highest = std::numeric_limits<int32_t>::max();
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_UINT32) {
      lowest = 0;
      highest = std::numeric_limits<uint32_t>::max();
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_UINT64) {
      lowest = 0;
    }
    absl::StatusOr<int64_t> value =
        IsByteSize(*field) ? ParseByteSize(text) : ParseInteger(text, lowest, highest);
    if (!value.ok()) return value.status();
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        repeated ? r.AddInt32(message, field, *value) : r.SetInt32(message, field, *value);
        break;
      case FieldDescriptor::CPPTYPE_UINT32:
        repeated ? r.AddUInt32(message, field, *value) : r.SetUInt32(message, field, *value);
        break;
      case FieldDescriptor::CPPTYPE_UINT64:
        repeated ? r.AddUInt64(message, field, *value) : r.SetUInt64(message, field, *value);
        break;
      default:
        repeated ? r.AddInt64(message, field, *value) : r.SetInt64(message, field, *value);
    }
    return absl::OkStatus();
  }

  // A Struct given as text is the path of a JSON file.
  void ReadStructFile(const YAML::Node& node, const std::string& path,
                      google::protobuf::Struct* any) {
    const std::filesystem::path file = std::filesystem::path(folder_) / node.Scalar();
    const auto add = [&](absl::string_view problem) {
      Add(node, path,
          absl::StrCat("\"", absl::Utf8SafeCHexEscape(TruncateUtf8(node.Scalar(), 256)), "\" ",
                       problem, "; give a mapping (`key: value`) or the path of a JSON file"));
    };
    std::ifstream in(file, std::ios::binary);
    std::error_code error;
    if (!std::filesystem::is_regular_file(file, error) || !in) {
      return add("is no file that can be read");
    }
    std::string text(kMaxStructFileBytes + 1, '\0');
    in.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<size_t>(in.gcount()));
    if (text.size() > kMaxStructFileBytes) return add("is larger than 1 MiB");
    const auto status = google::protobuf::util::JsonStringToMessage(text, any);
    if (!status.ok()) add("holds no JSON object");
  }

  void ReadStruct(const YAML::Node& node, const std::string& path, google::protobuf::Struct* any,
                  int depth) {
    std::set<std::string> seen;
    for (const auto& entry : node) {
      std::string name;
      if (!ReadKey(entry.first, path, &seen, &name)) continue;
      ReadValue(entry.second, Join(path, name), &(*any->mutable_fields())[name], depth + 1);
    }
  }

  void ReadValue(const YAML::Node& node, const std::string& path, google::protobuf::Value* value,
                 int depth) {
    if (!Enter(node, path, depth)) return;
    if (node.IsNull()) {
      value->set_null_value(google::protobuf::NULL_VALUE);
    } else if (node.IsMap()) {
      ReadStruct(node, path, value->mutable_struct_value(), depth);
    } else if (node.IsSequence()) {
      value->mutable_list_value();
      int i = 0;
      for (const YAML::Node& entry : node) {
        ReadValue(entry, absl::StrCat(path, "[", i++, "]"),
                  value->mutable_list_value()->add_values(), depth + 1);
      }
    } else {
      ReadPlainValue(node, path, value);
    }
  }

  void ReadPlainValue(const YAML::Node& node, const std::string& path,
                      google::protobuf::Value* value) {
    const std::string& text = node.Scalar();
    std::string lower = absl::AsciiStrToLower(text);
    if (IsQuoted(node)) {
      value->set_string_value(text);
    } else if (lower == "true" || lower == "false") {
      value->set_bool_value(lower == "true");
    } else if (absl::StatusOr<double> number = ParseNumber(text); number.ok()) {
      value->set_number_value(*number);
      if (std::abs(*number) >= kMaxExactDouble && text.find_first_of(".eE") == std::string::npos) {
        Add(node, path, absl::StrCat(Quote(text), " is out of range; expected less than 2^53"));
      }
    } else if (absl::StrContains(number.status().message(), "finite") ||
               absl::StrContains(number.status().message(), "too large")) {
      Add(node, path, absl::StrCat(Quote(text), " ", number.status().message()));
    } else {
      value->set_string_value(text);
    }
  }

  // Where relative paths begin.
  std::string folder_;
  const Descriptor* root_;
  std::vector<std::pair<int, std::string>> problems_;
  size_t expanded_bytes_ = 0;
  bool exhausted_ = false;
};

}  // namespace

absl::Status ReadYamlMessage(absl::string_view text, const std::string& folder, Message* message) {
  absl::Status status = CheckText(text);
  if (!status.ok()) return status;
  try {
    std::vector<YAML::Node> documents = YAML::LoadAll(std::string(text));
    if (documents.empty()) return absl::InvalidArgumentError("line 1: the file is empty");
    if (documents.size() > 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", documents[1].Mark().line + 1,
                       ": a second document begins; expected one (drop the line `---`)"));
    }
    Reader reader(message->GetDescriptor(), folder);
    reader.Read(documents[0], message);
    return reader.Finish();
  } catch (const YAML::Exception& e) {
    return absl::InvalidArgumentError(absl::StrCat("line ", std::max(0, e.mark.line) + 1,
                                                   ", column ", std::max(0, e.mark.column) + 1,
                                                   ": not valid YAML: ", e.msg));
  }
}

}  // namespace millrace
