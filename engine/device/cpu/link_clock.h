// The time that a throttled link keeps, as a seam for tests.
#ifndef MILLRACE_ENGINE_DEVICE_CPU_LINK_CLOCK_H_
#define MILLRACE_ENGINE_DEVICE_CPU_LINK_CLOCK_H_

#include <cstdint>

namespace millrace {

// Monotonic; from any thread.
class LinkClock {
 public:
  virtual ~LinkClock() = default;
  virtual int64_t NowNs() = 0;
  // Returns at `time_ns` or as soon after it as the system can; at once when it has passed.
  virtual void SleepUntilNs(int64_t time_ns) = 0;

  // The machine's. Threads that sleep by it do so to within some microseconds.
  static LinkClock& Real();
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_DEVICE_CPU_LINK_CLOCK_H_
