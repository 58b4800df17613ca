// Reading a JSON object of which every field counts: what is not asked for is refused by name.
//
//   JsonFields fields(value, "pre_tokenizer");
//   const std::string type = fields.String("type");
//   MILLRACE_RETURN_IF_ERROR(fields.Finish());
//
// The first problem is kept and given by Finish(); until then readers give the fallback.
#ifndef MILLRACE_ENGINE_DATA_JSON_FIELDS_H_
#define MILLRACE_ENGINE_DATA_JSON_FIELDS_H_

#include <cstdint>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace millrace {

class JsonFields {
 public:
  // `object` outlives this. `where` is what errors begin with.
  JsonFields(const nlohmann::json& object, absl::string_view where);

  // A string that must be there.
  std::string String(const std::string& name);
  // `fallback` where the field is missing or null.
  std::string String(const std::string& name, absl::string_view fallback);
  bool Bool(const std::string& name, bool fallback);
  // Must be there, from `least` to `most`.
  int64_t Integer(const std::string& name, int64_t least, int64_t most);
  // Null where the field is missing.
  const nlohmann::json& Value(const std::string& name);
  // What changes nothing.
  void Ignore(const std::string& name) { read_.insert(name); }

  // INVALID_ARGUMENT "WHERE: PROBLEM".
  absl::Status Problem(absl::string_view problem) const;
  // The first problem, or the first field that nobody asked for.
  absl::Status Finish() const;

 private:
  void Keep(absl::Status status);

  const nlohmann::json& object_;
  std::string where_;
  std::set<std::string> read_;
  absl::Status status_;
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_DATA_JSON_FIELDS_H_
