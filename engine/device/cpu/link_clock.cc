#include "engine/device/cpu/link_clock.h"

#include <sys/prctl.h>

#include <cerrno>
#include <ctime>

namespace millrace {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

class RealClock final : public LinkClock {
 public:
  int64_t NowNs() override {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * kSecond + now.tv_nsec;
  }
  void SleepUntilNs(int64_t time_ns) override {
    if (NowNs() >= time_ns) return;
    // By default the kernel may let a sleeper lie 50 µs longer. 1 ns is the least; 0 means 50 µs.
    thread_local const int slack = prctl(PR_SET_TIMERSLACK, 1);
    static_cast<void>(slack);
    const timespec until{.tv_sec = time_ns / kSecond, .tv_nsec = time_ns % kSecond};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) {
    }
  }
};

}  // namespace

LinkClock& LinkClock::Real() {
  static RealClock clock;
  return clock;
}

}  // namespace millrace
