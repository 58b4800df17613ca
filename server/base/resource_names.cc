#include "server/base/resource_names.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/base/status_macros.h"
#include "server/base/errors.h"

namespace millrace {
namespace {

constexpr size_t kMaxIdLength = 63;
constexpr char kIdRule[] =
    "1 to 63 of a-z, 0-9 and -, beginning with a letter and not ending with -";

absl::Status BadName(absl::string_view field, absl::string_view name, absl::string_view form) {
  return MakeFieldError(ErrorReason::kRequestInvalid,
                        {{std::string(field), absl::StrCat("'", name, "' is not of the form ", form,
                                                           ", where an id is ", kIdRule)}});
}

absl::StatusOr<std::string> ParseName(absl::string_view field, absl::string_view name,
                                      absl::string_view collection) {
  const std::vector<std::string> parts = absl::StrSplit(name, '/');
  if (parts.size() != 2 || parts[0] != collection || !IsValidId(parts[1])) {
    return BadName(field, name, absl::StrCat(collection, "/{id}"));
  }
  return parts[1];
}

}  // namespace

bool IsValidId(absl::string_view id) {
  return !id.empty() && id.size() <= kMaxIdLength && absl::ascii_islower(id.front()) &&
         id.back() != '-' && std::all_of(id.begin(), id.end(), [](char c) {
           return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-';
         });
}

absl::Status CheckId(absl::string_view field, absl::string_view id) {
  if (IsValidId(id)) return absl::OkStatus();
  return MakeFieldError(ErrorReason::kRequestInvalid,
                        {{std::string(field), absl::StrCat("'", id, "' is not ", kIdRule)}});
}

std::string JobName(absl::string_view id) { return absl::StrCat("jobs/", id); }

std::string DatasetName(absl::string_view id) { return absl::StrCat("datasets/", id); }

std::string ModelName(absl::string_view id) { return absl::StrCat("models/", id); }

std::string TokenizerName(absl::string_view id) { return absl::StrCat("tokenizers/", id); }

absl::StatusOr<std::string> ParseJobName(absl::string_view field, absl::string_view name) {
  return ParseName(field, name, "jobs");
}

absl::StatusOr<std::string> ParseDatasetName(absl::string_view field, absl::string_view name) {
  return ParseName(field, name, "datasets");
}

absl::StatusOr<std::string> ParseModelName(absl::string_view field, absl::string_view name) {
  return ParseName(field, name, "models");
}

absl::StatusOr<std::string> ParseTokenizerName(absl::string_view field, absl::string_view name) {
  return ParseName(field, name, "tokenizers");
}

absl::StatusOr<CheckpointName> ParseCheckpointName(absl::string_view field,
                                                   absl::string_view name) {
  const std::vector<std::string> parts = absl::StrSplit(name, '/');
  if (parts.size() != 4 || parts[0] != "jobs" || !IsValidId(parts[1]) ||
      parts[2] != "checkpoints" || parts[3].empty()) {
    return BadName(field, name, "jobs/{id}/checkpoints/{step}");
  }
  return CheckpointName{parts[1], parts[3]};
}

}  // namespace millrace
