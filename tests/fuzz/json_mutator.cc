// Lets libFuzzer change JSON as JSON, every other time: a value becomes another, goes, or comes to
// be where it was not. Bytes alone seldom change a number into one that is far away, and mostly
// into what is no JSON.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/base/json_file.h"
#include "nlohmann/json.hpp"

// libFuzzer's own change of bytes.
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace millrace {
namespace {

using nlohmann::json;

const std::vector<json>& Extremes() {
  static const auto* values = new std::vector<json>{
      nullptr,
      true,
      false,
      0,
      1,
      -1,
      2,
      3,
      64,
      1000,
      0.5,
      1e-300,
      1e308,
      -1e308,
      int64_t{1} << 31,
      int64_t{1} << 32,
      int64_t{1} << 53,
      std::numeric_limits<int64_t>::max(),
      std::numeric_limits<int64_t>::min(),
      std::numeric_limits<uint64_t>::max(),
      "",
      "default",
      json::array(),
      json::object(),
  };
  return *values;
}

void Collect(json& value, std::vector<json*>& values, std::vector<std::string>& keys) {
  values.push_back(&value);
  if (value.is_object()) {
    for (auto& [key, member] : value.items()) {
      keys.push_back(key);
      Collect(member, values, keys);
    }
  } else if (value.is_array()) {
    for (json& element : value) Collect(element, values, keys);
  }
}

void Change(json& root, std::minstd_rand& random) {
  std::vector<json*> values;
  std::vector<std::string> keys;
  Collect(root, values, keys);
  const auto pick = [&](const auto& list) -> const auto& { return list[random() % list.size()]; };
  json& value = *pick(values);
  const json other = random() % 2 ? pick(Extremes()) : *pick(values);
  if (value.is_number() && random() % 2) {
    const double number = value.get<double>();
    const double choices[] = {number * 2, number / 2, number + 1, number - 1, -number};
    const double changed = choices[random() % 5];
    value = changed;
    if (std::abs(changed) < 1e15 && changed == std::floor(changed)) {
      value = static_cast<int64_t>(changed);
    }
  } else if (value.is_array() && random() % 2) {
    if (!value.empty() && random() % 2) {
      value.erase(random() % value.size());
    } else {
      value.push_back(other);
    }
  } else if (value.is_object() && !keys.empty() && random() % 4) {
    const std::string& key = pick(keys);
    if (random() % 2) {
      value.erase(key);
    } else {
      value[key] = other;
    }
  } else {
    value = other;
  }
}

}  // namespace
}  // namespace millrace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  using namespace millrace;
  std::minstd_rand random(seed);
  if (random() % 2) return LLVMFuzzerMutate(data, size, max_size);
  absl::StatusOr<nlohmann::json> value =
      ParseJson(absl::string_view(reinterpret_cast<const char*>(data), size));
  if (!value.ok()) return LLVMFuzzerMutate(data, size, max_size);
  for (unsigned changes = 1 + random() % 3; changes > 0; --changes) Change(*value, random);
  const std::string text = value->dump();
  if (text.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, text.data(), text.size());
  return text.size();
}
