#include "server/jobs/stored_job.h"

namespace millrace {

google::protobuf::Timestamp ToTimestamp(absl::Time time) {
  const int64_t nanos = absl::ToUnixNanos(time);
  google::protobuf::Timestamp timestamp;
  timestamp.set_seconds(nanos / 1'000'000'000);
  timestamp.set_nanos(static_cast<int32_t>(nanos % 1'000'000'000));
  return timestamp;
}

}  // namespace millrace
