// One direction of the link between host and device, as a queue in time.
//
//   Link link(/*bytes_per_second=*/16e9, /*latency_ns=*/10'000);
//   const Link::Transfer transfer = link.Reserve(bytes, ready_ns);
//   ... copy, then wait until transfer.arrived_ns ...
//
// A transfer occupies the link for bytes ÷ bandwidth, one after the other, and arrives a latency
// after it has left: transfers that are queued back to back pay the latency once, as on PCIe.
#ifndef MILLRACE_ENGINE_DEVICE_CPU_LINK_H_
#define MILLRACE_ENGINE_DEVICE_CPU_LINK_H_

#include <cstddef>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace millrace {

// Threads: any.
class Link {
 public:
  // Bandwidth of 0: not throttled, transfers take no time but the latency.
  Link(double bytes_per_second, int64_t latency_ns)
      : bytes_per_second_(bytes_per_second), latency_ns_(latency_ns) {}

  struct Transfer {
    int64_t left_ns;     // the link is free for the next
    int64_t arrived_ns;  // the last byte is there
  };
  // Of `bytes` that are ready to go at `ready_ns`, behind all that was reserved before.
  Transfer Reserve(size_t bytes, int64_t ready_ns);

 private:
  const double bytes_per_second_;
  const int64_t latency_ns_;
  absl::Mutex mutex_;
  // Fractions of a nanosecond add up over many small transfers.
  double free_ns_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_DEVICE_CPU_LINK_H_
