#include "engine/schedule/timing.h"

#include <algorithm>
#include <chrono>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace millrace {
namespace {

// Calls of a measurement: so many at least and at most; no more than the least once so many seconds
// have gone by.
constexpr int kFewestCalls = 2, kMostCalls = 3;
constexpr double kEnough = 0.02;
// A call this long, seconds, ends a measurement.
constexpr double kLong = 0.1;
constexpr size_t kRingBytes = size_t{64} << 20;

#if defined(__x86_64__)
__attribute__((target("clflushopt"))) void EvictQuickly(const std::byte* data, size_t bytes) {
  for (size_t at = 0; at < bytes; at += 64) _mm_clflushopt(const_cast<std::byte*>(data) + at);
}
#endif

}  // namespace

double TypicalSeconds(const std::function<void()>& call, const std::function<void()>& prepare) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> seconds;
  double spent = 0;
  for (int i = 0; i <= kMostCalls && (i <= kFewestCalls || spent < kEnough); ++i) {
    prepare();
    const Clock::time_point begin = Clock::now();
    call();
    const double last = std::chrono::duration<double>(Clock::now() - begin).count();
    if (last > kLong && i > 0) {
      if (seconds.empty()) seconds.push_back(last);
      break;
    }
    if (i == 0) continue;
    seconds.push_back(last);
    spent += last;
  }
  std::sort(seconds.begin(), seconds.end());
  return std::max(seconds[(seconds.size() - 1) / 2], 1e-9);
}

void Evict(const void* data, size_t bytes) {
#if defined(__x86_64__)
  const auto* begin = static_cast<const std::byte*>(data);
  if (__builtin_cpu_supports("clflushopt")) {
    EvictQuickly(begin, bytes);
  } else {
    for (size_t at = 0; at < bytes; at += 64) _mm_clflush(begin + at);
  }
  _mm_mfence();
#else
  (void)data;
  (void)bytes;
#endif
}

AlignedBuffer MeasurementMemory(size_t bytes) {
  absl::StatusOr<AlignedBuffer> memory = AlignedBuffer::Allocate(bytes, "measuring the processor");
  return memory.ok() ? *std::move(memory) : AlignedBuffer();
}

MeasurementRing::MeasurementRing(DType type, ThreadPool& pool)
    : memory_(MeasurementMemory(kRingBytes)) {
  const int64_t count = static_cast<int64_t>(memory_.size() / SizeOf(type));
  pool.ParallelFor(count, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float value = static_cast<float>((i * 7919) % 1021 - 510) / 2048.0f;
      if (type == DType::kBF16) {
        memory_.as<BFloat16>()[i] = BFloat16::FromFloat(value);
      } else {
        memory_.as<float>()[i] = value;
      }
    }
  });
}

void* MeasurementRing::Take(size_t bytes) {
  if (at_ + bytes > memory_.size()) at_ = 0;
  std::byte* taken = memory_.data() + at_;
  at_ += AlignUp(bytes, kSlabAlignment);
  taken_.emplace_back(taken, bytes);
  return taken;
}

void MeasurementRing::EvictTaken() {
  for (const auto& [data, bytes] : taken_) Evict(data, bytes);
  taken_.clear();
}

}  // namespace millrace
