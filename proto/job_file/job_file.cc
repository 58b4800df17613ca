#include "proto/job_file/job_file.h"

#include "absl/status/status.h"
#include "proto/job_file/message_reader.h"
#include "proto/job_file/message_writer.h"

namespace millrace {

absl::StatusOr<v1::JobSpec> ParseJobFile(absl::string_view text, const std::string& folder) {
  v1::JobSpec spec;
  absl::Status status = ReadYamlMessage(text, folder, &spec);
  if (!status.ok()) return status;
  return spec;
}

std::string FormatJobFile(const v1::JobSpec& spec) { return WriteYamlMessage(spec); }

}  // namespace millrace
