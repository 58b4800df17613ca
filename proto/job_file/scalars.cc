#include "proto/job_file/scalars.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace millrace {
namespace {

struct Unit {
  const char* name;
  int64_t bytes;
};

// Largest first of its kind.
constexpr std::array<Unit, 9> kUnits = {{{"TiB", int64_t{1} << 40},
                                         {"GiB", int64_t{1} << 30},
                                         {"MiB", int64_t{1} << 20},
                                         {"KiB", int64_t{1} << 10},
                                         {"TB", 1'000'000'000'000},
                                         {"GB", 1'000'000'000},
                                         {"MB", 1'000'000},
                                         {"KB", 1'000},
                                         {"B", 1}}};

// Decimal digits with an optional sign, fraction and exponent, and nothing else: neither `inf`,
// `nan` nor hexadecimal, which strtod would take too.
bool LooksLikeNumber(absl::string_view text) {
  size_t i = 0;
  auto digits = [&] {
    size_t begin = i;
    while (i < text.size() && absl::ascii_isdigit(text[i])) ++i;
    return i - begin;
  };
  if (i < text.size() && (text[i] == '-' || text[i] == '+')) ++i;
  size_t mantissa = digits();
  if (i < text.size() && text[i] == '.') {
    ++i;
    mantissa += digits();
  }
  if (mantissa == 0) return false;
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    ++i;
    if (i < text.size() && (text[i] == '-' || text[i] == '+')) ++i;
    if (digits() == 0) return false;
  }
  return i == text.size();
}

absl::Status OutOfRange(int64_t lowest, int64_t highest) {
  return absl::InvalidArgumentError(
      absl::StrCat("is out of range; expected ", lowest, " to ", highest));
}

}  // namespace

absl::StatusOr<int64_t> ParseInteger(absl::string_view text, int64_t lowest, int64_t highest) {
  if (!LooksLikeNumber(text)) {
    return absl::InvalidArgumentError("is not a whole number");
  }
  int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value)) {
    bool plain_digits = std::none_of(text.begin(), text.end(),
                                     [](char c) { return c == '.' || c == 'e' || c == 'E'; });
    double number = 0;
    if (plain_digits || !absl::SimpleAtod(text, &number)) return OutOfRange(lowest, highest);
    if (number != std::trunc(number)) return absl::InvalidArgumentError("is not a whole number");
    // Beyond 2^53 an exponent form no longer says which whole number is meant.
    if (std::abs(number) > 9007199254740992.0) return OutOfRange(lowest, highest);
    value = static_cast<int64_t>(number);
  }
  if (value < lowest || value > highest) return OutOfRange(lowest, highest);
  return value;
}

absl::StatusOr<double> ParseNumber(absl::string_view text) {
  double value = 0;
  std::string lower = absl::AsciiStrToLower(text);
  if (lower == ".nan" || absl::EndsWith(lower, ".inf")) {
    return absl::InvalidArgumentError("is not finite; expected a number");
  }
  if (!LooksLikeNumber(text) || !absl::SimpleAtod(text, &value)) {
    return absl::InvalidArgumentError("is not a number");
  }
  if (!std::isfinite(value)) {
    return absl::InvalidArgumentError("is too large for a 64-bit number");
  }
  return value;
}

absl::StatusOr<int64_t> ParseByteSize(absl::string_view text) {
  const absl::Status malformed = absl::InvalidArgumentError(
      "is not a size; expected a number with a unit, such as 512MiB or "
      "2GiB");
  size_t end = 0;
  while (end < text.size() && (absl::ascii_isdigit(text[end]) || text[end] == '.')) ++end;
  absl::string_view number_text = text.substr(0, end);
  absl::string_view unit_text = absl::StripAsciiWhitespace(text.substr(end));
  int64_t unit_bytes = 0;
  for (const Unit& unit : kUnits) {
    if (absl::EqualsIgnoreCase(unit_text.empty() ? "B" : unit_text, unit.name)) {
      unit_bytes = unit.bytes;
    }
  }
  double number = 0;
  if (unit_bytes == 0 || !LooksLikeNumber(number_text) || !absl::SimpleAtod(number_text, &number)) {
    return malformed;
  }
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  int64_t whole = 0;
  if (absl::SimpleAtoi(number_text, &whole)) {
    if (whole > kMax / unit_bytes) return absl::InvalidArgumentError("is too large for a size");
    return whole * unit_bytes;
  }
  double bytes = number * static_cast<double>(unit_bytes);
  if (bytes >= static_cast<double>(kMax)) {
    return absl::InvalidArgumentError("is too large for a size");
  }
  return static_cast<int64_t>(bytes);
}

std::string FormatNumber(double value) {
  std::array<char, 64> buffer;
  auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return error == std::errc() ? std::string(buffer.data(), end) : absl::StrCat(value);
}

std::string FormatByteSize(int64_t bytes) {
  for (const Unit& unit : kUnits) {
    if (unit.name[1] == 'i' && bytes != 0 && bytes % unit.bytes == 0) {
      return absl::StrCat(bytes / unit.bytes, unit.name);
    }
  }
  return absl::StrCat(bytes);
}

std::string NearestName(absl::string_view name, const std::vector<std::string>& names) {
  // Levenshtein distance, a row at a time.
  auto distance = [&](const std::string& other) {
    std::vector<size_t> row(other.size() + 1);
    std::iota(row.begin(), row.end(), 0);
    for (size_t i = 0; i < name.size(); ++i) {
      size_t diagonal = row[0]++;
      for (size_t j = 0; j < other.size(); ++j) {
        size_t substituted = diagonal + (absl::ascii_tolower(name[i]) == other[j] ? 0 : 1);
        diagonal = row[j + 1];
        row[j + 1] = std::min({substituted, row[j] + 1, row[j + 1] + 1});
      }
    }
    return row.back();
  };
  std::string nearest;
  // Two edits make a transposition.
  size_t limit = (name.size() < 4 ? 1 : std::max<size_t>(2, name.size() / 3)) + 1;
  for (const std::string& other : names) {
    // A part of a name (`max` for `max_tokens`, `lr_schedule` for `schedule`) is near too.
    bool contains = name.size() >= 4 && (absl::StrContains(other, name) ||
                                         (other.size() >= 4 && absl::StrContains(name, other)));
    size_t d = contains ? 1 : distance(other);
    if (d < limit) {
      limit = d;
      nearest = other;
    }
  }
  return nearest;
}

}  // namespace millrace
