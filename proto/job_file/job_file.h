// Job files: a JobSpec written by a person, as YAML.
//
//   name: shakespeare
//   data: {train: datasets/plays, sequence_length: 512}
//   memory: {device_budget: 2GiB}
//
// Keys are the field names of millrace/v1/job_spec.proto. An int64 field whose name ends in
// `_bytes` is written without that ending and with a unit (KB, MB, GB, TB, KiB, MiB, GiB, TiB, or
// none). A google.protobuf.Struct takes any mapping, or the path of a JSON file
// (`config: ./config.json`), whose content then stands in its place. Only the form is judged here;
// whether the values make a job that can run is for the daemon and the worker to say.
//
// Nothing here knows a field by name: a field added to the proto can be read and written at once.
#ifndef MILLRACE_PROTO_JOB_FILE_JOB_FILE_H_
#define MILLRACE_PROTO_JOB_FILE_JOB_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "millrace/v1/job_spec.pb.h"

namespace millrace {

// Reads a job file. On failure the error is InvalidArgument and its message has one line a problem,
// as many as were found (at most 20, then how many more), in the order of the file:
//   line 7: train.stpes: unknown key; did you mean train.steps?
//   line 9: train.seed: "seven" is not a whole number
// Relative paths of JSON files begin at `folder`: the job file's own.
absl::StatusOr<v1::JobSpec> ParseJobFile(absl::string_view text, const std::string& folder = ".");

// The job file that ParseJobFile reads as `spec`. Fields that are not set are left out.
std::string FormatJobFile(const v1::JobSpec& spec);

}  // namespace millrace

#endif  // MILLRACE_PROTO_JOB_FILE_JOB_FILE_H_
