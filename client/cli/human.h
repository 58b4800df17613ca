// Quantities as people read them.
#ifndef MILLRACE_CLIENT_CLI_HUMAN_H_
#define MILLRACE_CLIENT_CLI_HUMAN_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/timestamp.pb.h"

namespace millrace {

// `512 B`, `1.5 KiB`, `12.0 GiB`.
std::string HumanBytes(int64_t bytes);

// `840`, `12.3k`, `4.56M`.
std::string HumanCount(double count);

// Parameters of a model, as models are called: `840k`, `135M`, `1.1B`, `70B`.
std::string HumanParameters(int64_t count);

// `0.4s`, `42s`, `3m12s`, `5h03m`, `2d04h`.
std::string HumanDuration(absl::Duration duration);

// `3m12s ago`; `-` for a time that is not set.
std::string HumanAge(const google::protobuf::Timestamp& time, absl::Time now);

// `2026-12-01 12:00:00` in local time; `-` when not set.
std::string HumanTime(const google::protobuf::Timestamp& time);

// `2.1340`.
std::string HumanLoss(double loss);

// `17%`.
std::string HumanPercent(double ratio);

// The resource id at the end of a name: `plays` for `jobs/plays`.
std::string ResourceId(absl::string_view name);

// `jobs/plays` for `plays` and for `jobs/plays`; collection is `jobs`.
std::string ResourceName(absl::string_view collection, absl::string_view id);

absl::Time FromProto(const google::protobuf::Timestamp& time);
absl::Duration FromProto(const google::protobuf::Duration& duration);

}  // namespace millrace

#endif  // MILLRACE_CLIENT_CLI_HUMAN_H_
