#include "engine/model/gguf_keys.h"

#include <cmath>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "engine/base/status_macros.h"

namespace millrace {

std::string GgufKeys::FullKey(absl::string_view key) const {
  return absl::StrCat(architecture_, ".", key);
}

absl::Status GgufKeys::Error(absl::string_view name, absl::string_view message) const {
  return absl::InvalidArgumentError(
      absl::StrCat(file_.path(), ": ", absl::Utf8SafeCHexEscape(name), " ", message));
}

const GgufValue* GgufKeys::Find(absl::string_view key) {
  std::string full = FullKey(key);
  const GgufValue* value = file_.FindValue(full);
  known_.insert(std::move(full));
  return value;
}

absl::StatusOr<std::optional<int64_t>> GgufKeys::Whole(absl::string_view key) {
  const GgufValue* value = Find(key);
  if (!value) return std::nullopt;
  const std::optional<int64_t> number = value->whole();
  if (!number || *number < 0 || *number > int64_t{1} << 40) {
    return Error(FullKey(key), "is no whole number that is possible; one for all blocks is read");
  }
  return number;
}

absl::StatusOr<std::optional<double>> GgufKeys::Real(absl::string_view key) {
  const GgufValue* value = Find(key);
  if (!value) return std::nullopt;
  const std::optional<double> number = value->real();
  if (!number || !std::isfinite(*number)) return Error(FullKey(key), "is no finite number");
  return number;
}

absl::StatusOr<std::optional<std::string>> GgufKeys::Text(absl::string_view key) {
  const GgufValue* value = Find(key);
  if (!value) return std::nullopt;
  if (!value->text()) return Error(FullKey(key), "is no string");
  return std::string(*value->text());
}

absl::StatusOr<std::vector<double>> GgufKeys::Factors(absl::string_view tensor,
                                                      int64_t count) const {
  const GgufTensor* found = file_.FindTensor(tensor);
  if (!found) return std::vector<double>();
  const std::string name = absl::StrCat("tensor \"", tensor, "\"");
  if (found->count() != count) {
    return Error(name, absl::StrCat("has ", found->count(), " elements; half a head has ", count));
  }
  std::vector<float> values(count);
  MILLRACE_RETURN_IF_ERROR(file_.Read(*found, 0, absl::MakeSpan(values)));
  std::vector<double> factors;
  for (float value : values) {
    if (!(value > 0.0f && value < 1e6f)) return Error(name, "has an impossible factor");
    factors.push_back(*GgufValue::Float32(value).real());
  }
  return factors;
}

absl::Status GgufKeys::CheckUnknown() const {
  const std::string prefix = FullKey("");
  for (const auto& [key, value] : file_.metadata()) {
    if (absl::StartsWith(key, prefix) && !known_.contains(key)) {
      return Error(key, "is not supported: it may change what the model computes");
    }
  }
  return absl::OkStatus();
}

}  // namespace millrace
