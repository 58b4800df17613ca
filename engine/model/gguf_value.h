// A value of a GGUF file's metadata, kept as the file encodes it, so that it can be written again
// unchanged whatever its type.
//
//   GgufValue value = GgufValue::Uint32(7);
//   value.whole();  // 7
//   value.text();   // nothing: it is no string
#ifndef MILLRACE_ENGINE_MODEL_GGUF_VALUE_H_
#define MILLRACE_ENGINE_MODEL_GGUF_VALUE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace millrace {

// Values are the ids in files.
enum class GgufValueType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

class GgufValue {
 public:
  static GgufValue Uint32(uint32_t value);
  static GgufValue Float32(float value);
  static GgufValue Bool(bool value);
  static GgufValue String(absl::string_view value);
  static GgufValue Int32s(absl::Span<const int32_t> values);
  static GgufValue Float32s(absl::Span<const float> values);
  static GgufValue Strings(absl::Span<const std::string> values);

  // Takes a value of type `type` off the front of `bytes`. Nothing when `bytes` end within it, its
  // type or that of its elements is unknown, or arrays nest more than four deep.
  static std::optional<GgufValue> Take(uint32_t type, absl::string_view& bytes);

  GgufValueType type() const { return type_; }
  absl::string_view encoded() const { return encoded_; }

  // Nothing when the value is of another kind. A whole number is of any integer type and within
  // int64. A real number is of any numeric type; a float is the shortest decimal that rounds to
  // it, since that is what whoever wrote it had (1e-05, not 9.999999747378752e-06).
  std::optional<int64_t> whole() const;
  std::optional<double> real() const;
  std::optional<bool> boolean() const;
  std::optional<absl::string_view> text() const;
  // Of arrays.
  std::optional<std::vector<int64_t>> wholes() const;
  std::optional<std::vector<double>> reals() const;
  std::optional<std::vector<std::string>> texts() const;

 private:
  GgufValue(GgufValueType type, std::string encoded) : type_(type), encoded_(std::move(encoded)) {}

  // Calls take(value) for the elements of an array, each a value of its own, until it says no.
  bool ForElements(absl::FunctionRef<bool(const GgufValue&)> take) const;

  GgufValueType type_;
  std::string encoded_;
};

// Takes a string with its length off the front of `bytes`.
std::optional<absl::string_view> TakeGgufString(absl::string_view& bytes);
// Takes a number off the front of `bytes`.
std::optional<uint32_t> TakeGgufUint32(absl::string_view& bytes);
std::optional<uint64_t> TakeGgufUint64(absl::string_view& bytes);

void AppendGgufString(absl::string_view value, std::string* out);
void AppendGgufUint32(uint32_t value, std::string* out);
void AppendGgufUint64(uint64_t value, std::string* out);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_MODEL_GGUF_VALUE_H_
