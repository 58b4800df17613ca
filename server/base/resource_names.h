// Names of resources: `jobs/{id}`, `datasets/{id}`, `models/{id}`, `tokenizers/{id}`,
// `jobs/{id}/checkpoints/{step}`.
//
//   MILLRACE_ASSIGN_OR_RETURN(std::string id, ParseJobName("name", request.name()));
//
// `field` is the request's field that the name came in; the error is INVALID_ARGUMENT
// REQUEST_INVALID with a violation of that field.
#ifndef MILLRACE_SERVER_BASE_RESOURCE_NAMES_H_
#define MILLRACE_SERVER_BASE_RESOURCE_NAMES_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace millrace {

// 1 to 63 of [a-z0-9-], beginning with a letter and not ending with `-`.
bool IsValidId(absl::string_view id);
absl::Status CheckId(absl::string_view field, absl::string_view id);

std::string JobName(absl::string_view id);
std::string DatasetName(absl::string_view id);
std::string ModelName(absl::string_view id);
std::string TokenizerName(absl::string_view id);

// The id in `jobs/{id}`.
absl::StatusOr<std::string> ParseJobName(absl::string_view field, absl::string_view name);
// The id in `datasets/{id}`.
absl::StatusOr<std::string> ParseDatasetName(absl::string_view field, absl::string_view name);
// The id in `models/{id}`.
absl::StatusOr<std::string> ParseModelName(absl::string_view field, absl::string_view name);
// The id in `tokenizers/{id}`.
absl::StatusOr<std::string> ParseTokenizerName(absl::string_view field, absl::string_view name);

struct CheckpointName {
  std::string job_id;
  // Not empty, otherwise unchecked: `200`, `latest`, `best`.
  std::string step;
};
absl::StatusOr<CheckpointName> ParseCheckpointName(absl::string_view field, absl::string_view name);

}  // namespace millrace

#endif  // MILLRACE_SERVER_BASE_RESOURCE_NAMES_H_
