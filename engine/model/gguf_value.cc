#include "engine/model/gguf_value.h"

#include <charconv>
#include <cstring>
#include <limits>

namespace millrace {
namespace {

constexpr int kMostNesting = 4;

template <typename T>
void AppendNumber(T value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <typename T>
std::optional<T> TakeNumber(absl::string_view& bytes) {
  if (bytes.size() < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  bytes.remove_prefix(sizeof(T));
  return value;
}

// Bytes of a value of fixed size; 0 for strings, arrays and unknown types.
uint64_t FixedSize(uint32_t type) {
  switch (static_cast<GgufValueType>(type)) {
    case GgufValueType::kUint8:
    case GgufValueType::kInt8:
    case GgufValueType::kBool:
      return 1;
    case GgufValueType::kUint16:
    case GgufValueType::kInt16:
      return 2;
    case GgufValueType::kUint32:
    case GgufValueType::kInt32:
    case GgufValueType::kFloat32:
      return 4;
    case GgufValueType::kUint64:
    case GgufValueType::kInt64:
    case GgufValueType::kFloat64:
      return 8;
    default:
      return 0;
  }
}

// Takes a value off the front; its length is what has gone.
bool Skip(uint32_t type, int nesting, absl::string_view& bytes) {
  if (const uint64_t size = FixedSize(type)) {
    if (bytes.size() < size) return false;
    bytes.remove_prefix(size);
    return true;
  }
  if (type == static_cast<uint32_t>(GgufValueType::kString)) {
    return TakeGgufString(bytes).has_value();
  }
  if (type != static_cast<uint32_t>(GgufValueType::kArray) || nesting >= kMostNesting) return false;
  const std::optional<uint32_t> element = TakeGgufUint32(bytes);
  const std::optional<uint64_t> count = TakeGgufUint64(bytes);
  if (!element || !count) return false;
  if (const uint64_t size = FixedSize(*element)) {
    if (*count > bytes.size() / size) return false;
    bytes.remove_prefix(*count * size);
    return true;
  }
  // Each of these takes bytes, so that the count cannot lead beyond what is there.
  for (uint64_t i = 0; i < *count; ++i) {
    if (!Skip(*element, nesting + 1, bytes)) return false;
  }
  return true;
}

template <typename T>
T Decode(absl::string_view encoded) {
  return *TakeNumber<T>(encoded);
}

double ShortestDecimal(float value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text), value).ptr;
  double decimal = value;
  std::from_chars(text, end, decimal);
  return decimal;
}

}  // namespace

std::optional<absl::string_view> TakeGgufString(absl::string_view& bytes) {
  const std::optional<uint64_t> length = TakeGgufUint64(bytes);
  if (!length || *length > bytes.size()) return std::nullopt;
  const absl::string_view text = bytes.substr(0, *length);
  bytes.remove_prefix(*length);
  return text;
}
std::optional<uint32_t> TakeGgufUint32(absl::string_view& bytes) {
  return TakeNumber<uint32_t>(bytes);
}
std::optional<uint64_t> TakeGgufUint64(absl::string_view& bytes) {
  return TakeNumber<uint64_t>(bytes);
}

void AppendGgufString(absl::string_view value, std::string* out) {
  AppendGgufUint64(value.size(), out);
  out->append(value.data(), value.size());
}
void AppendGgufUint32(uint32_t value, std::string* out) { AppendNumber(value, out); }
void AppendGgufUint64(uint64_t value, std::string* out) { AppendNumber(value, out); }

GgufValue GgufValue::Uint32(uint32_t value) {
  GgufValue result(GgufValueType::kUint32, "");
  AppendNumber(value, &result.encoded_);
  return result;
}
GgufValue GgufValue::Float32(float value) {
  GgufValue result(GgufValueType::kFloat32, "");
  AppendNumber(value, &result.encoded_);
  return result;
}
GgufValue GgufValue::Bool(bool value) {
  return GgufValue(GgufValueType::kBool, std::string(1, value ? '\1' : '\0'));
}
GgufValue GgufValue::String(absl::string_view value) {
  GgufValue result(GgufValueType::kString, "");
  AppendGgufString(value, &result.encoded_);
  return result;
}

namespace {

std::string ArrayHead(GgufValueType element, size_t count) {
  std::string head;
  AppendGgufUint32(static_cast<uint32_t>(element), &head);
  AppendGgufUint64(count, &head);
  return head;
}

}  // namespace

GgufValue GgufValue::Int32s(absl::Span<const int32_t> values) {
  GgufValue result(GgufValueType::kArray, ArrayHead(GgufValueType::kInt32, values.size()));
  for (int32_t value : values) AppendNumber(value, &result.encoded_);
  return result;
}
GgufValue GgufValue::Float32s(absl::Span<const float> values) {
  GgufValue result(GgufValueType::kArray, ArrayHead(GgufValueType::kFloat32, values.size()));
  for (float value : values) AppendNumber(value, &result.encoded_);
  return result;
}
GgufValue GgufValue::Strings(absl::Span<const std::string> values) {
  GgufValue result(GgufValueType::kArray, ArrayHead(GgufValueType::kString, values.size()));
  for (const std::string& value : values) AppendGgufString(value, &result.encoded_);
  return result;
}

std::optional<GgufValue> GgufValue::Take(uint32_t type, absl::string_view& bytes) {
  absl::string_view rest = bytes;
  if (!Skip(type, 0, rest)) return std::nullopt;
  GgufValue value(static_cast<GgufValueType>(type),
                  std::string(bytes.substr(0, bytes.size() - rest.size())));
  bytes = rest;
  return value;
}

std::optional<int64_t> GgufValue::whole() const {
  switch (type_) {
    case GgufValueType::kUint8:
      return Decode<uint8_t>(encoded_);
    case GgufValueType::kInt8:
      return Decode<int8_t>(encoded_);
    case GgufValueType::kUint16:
      return Decode<uint16_t>(encoded_);
    case GgufValueType::kInt16:
      return Decode<int16_t>(encoded_);
    case GgufValueType::kUint32:
      return Decode<uint32_t>(encoded_);
    case GgufValueType::kInt32:
      return Decode<int32_t>(encoded_);
    case GgufValueType::kInt64:
      return Decode<int64_t>(encoded_);
    case GgufValueType::kUint64: {
      const uint64_t value = Decode<uint64_t>(encoded_);
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
      return static_cast<int64_t>(value);
    }
    default:
      return std::nullopt;
  }
}

std::optional<double> GgufValue::real() const {
  if (type_ == GgufValueType::kFloat32) return ShortestDecimal(Decode<float>(encoded_));
  if (type_ == GgufValueType::kFloat64) return Decode<double>(encoded_);
  if (const std::optional<int64_t> number = whole()) return static_cast<double>(*number);
  return std::nullopt;
}

std::optional<bool> GgufValue::boolean() const {
  if (type_ != GgufValueType::kBool) return std::nullopt;
  return encoded_[0] != '\0';
}

std::optional<absl::string_view> GgufValue::text() const {
  if (type_ != GgufValueType::kString) return std::nullopt;
  absl::string_view bytes = encoded_;
  return TakeGgufString(bytes);
}

bool GgufValue::ForElements(absl::FunctionRef<bool(const GgufValue&)> take) const {
  if (type_ != GgufValueType::kArray) return false;
  absl::string_view bytes = encoded_;
  const uint32_t element = *TakeGgufUint32(bytes);
  const uint64_t count = *TakeGgufUint64(bytes);
  for (uint64_t i = 0; i < count; ++i) {
    const std::optional<GgufValue> value = GgufValue::Take(element, bytes);
    if (!value || !take(*value)) return false;
  }
  return true;
}

std::optional<std::vector<int64_t>> GgufValue::wholes() const {
  std::vector<int64_t> values;
  if (!ForElements([&](const GgufValue& value) {
        const std::optional<int64_t> number = value.whole();
        if (number) values.push_back(*number);
        return number.has_value();
      })) {
    return std::nullopt;
  }
  return values;
}

std::optional<std::vector<double>> GgufValue::reals() const {
  std::vector<double> values;
  if (!ForElements([&](const GgufValue& value) {
        const std::optional<double> number = value.real();
        if (number) values.push_back(*number);
        return number.has_value();
      })) {
    return std::nullopt;
  }
  return values;
}

std::optional<std::vector<std::string>> GgufValue::texts() const {
  std::vector<std::string> values;
  if (!ForElements([&](const GgufValue& value) {
        const std::optional<absl::string_view> text = value.text();
        if (text) values.emplace_back(*text);
        return text.has_value();
      })) {
    return std::nullopt;
  }
  return values;
}

}  // namespace millrace
