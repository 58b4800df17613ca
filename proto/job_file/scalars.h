// The scalars of a job file: numbers, sizes and near names.
#ifndef MILLRACE_PROTO_JOB_FILE_SCALARS_H_
#define MILLRACE_PROTO_JOB_FILE_SCALARS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace millrace {

// The errors of these say what is wrong with the value and what is expected, without the value.

// A whole number in decimal, or in exponent form when it is whole (`1e3`, but not `1.5`).
absl::StatusOr<int64_t> ParseInteger(absl::string_view text, int64_t lowest, int64_t highest);

// Finite.
absl::StatusOr<double> ParseNumber(absl::string_view text);

// Bytes: `2GiB`, `1.5 GB`, `4096`. Units may be written in any case; parts of a byte are dropped.
absl::StatusOr<int64_t> ParseByteSize(absl::string_view text);

// The shortest text that reads back as the same number.
std::string FormatNumber(double value);

// In the largest binary unit that divides it: `2GiB`, `1000`.
std::string FormatByteSize(int64_t bytes);

// The one of `names` that is most like `name`, or empty when none is near.
std::string NearestName(absl::string_view name, const std::vector<std::string>& names);

}  // namespace millrace

#endif  // MILLRACE_PROTO_JOB_FILE_SCALARS_H_
