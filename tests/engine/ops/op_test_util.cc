#include "tests/engine/ops/op_test_util.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/device/cpu/cpu_device.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kGuard = 256;
constexpr auto kGuardByte = std::byte{0xa5};

}  // namespace

Doubles RandomDoubles(int64_t count, uint64_t seed, double scale, double shift) {
  Doubles values(count);
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 0x1234567;
  for (double& value : values) {
    // SplitMix64 (Steele et al. 2014).
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    value = (static_cast<double>(z >> 11) * 0x1p-52 - 1) * scale + shift;
  }
  return values;
}

Tensor::Tensor(DType type, int64_t count, size_t offset_bytes) : type_(type), count_(count) {
  const size_t bytes = count * SizeOf(type);
  const size_t total = 2 * kPage + offset_bytes + bytes + 2 * kGuard;
  memory_.reset(new std::byte[total]);
  const auto address = reinterpret_cast<uintptr_t>(memory_.get()) + kGuard;
  data_ = memory_.get() + kGuard + (kPage - address % kPage) + offset_bytes;
  std::memset(data_ - kGuard, static_cast<int>(kGuardByte), kGuard);
  std::memset(data_, 0xff, bytes);
  std::memset(data_ + bytes, static_cast<int>(kGuardByte), kGuard);
}

Tensor::Tensor(DType type, const Doubles& values, size_t offset_bytes)
    : Tensor(type, static_cast<int64_t>(values.size()), offset_bytes) {
  for (size_t i = 0; i < values.size(); ++i) {
    const auto value = static_cast<float>(values[i]);
    if (type == DType::kF32) {
      as<float>()[i] = value;
    } else {
      as<BFloat16>()[i] = BFloat16::FromFloat(value);
    }
  }
}

Tensor::~Tensor() {
  if (memory_ == nullptr) return;
  const std::byte* end = data_ + count_ * SizeOf(type_);
  const auto intact = [](std::byte b) { return b == kGuardByte; };
  EXPECT_TRUE(std::all_of(data_ - kGuard, data_, intact)) << "written before a tensor's begin";
  EXPECT_TRUE(std::all_of(end, end + kGuard, intact)) << "written past a tensor's end";
}

Doubles Tensor::values() const {
  Doubles values(count_);
  for (int64_t i = 0; i < count_; ++i) {
    values[i] = type_ == DType::kF32 ? reinterpret_cast<const float*>(data_)[i]
                                     : reinterpret_cast<const BFloat16*>(data_)[i].ToFloat();
  }
  return values;
}

std::string Tensor::bytes() const {
  return {reinterpret_cast<const char*>(data_), count_ * SizeOf(type_)};
}

Rig::Rig(DType compute, int threads, const OpsLimits& limits)
    : pool(threads),
      device(CreateCpuDevice(0).value()),
      stream(device->CreateStream("test")),
      ops(CreateCpuOps(compute, &pool)) {
  const size_t bytes = ops->WorkspaceBytes(limits);
  workspace = std::make_unique<Tensor>(DType::kF32, static_cast<int64_t>(bytes / sizeof(float)), 0);
  ops->SetWorkspace(workspace->data(), bytes);
}

void ExpectClose(const Doubles& got, const Doubles& want, Tolerance tolerance, const char* what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double largest = 0;
  for (const double w : want) largest = std::max(largest, std::abs(w));
  int failures = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double bound = tolerance.relative * std::abs(want[i]) + tolerance.absolute * largest;
    // Not `>`: NaN must fail.
    if (!(std::abs(got[i] - want[i]) <= bound) && ++failures <= 5) {
      ADD_FAILURE() << what << "[" << i << "] is " << got[i] << ", not " << want[i] << " +- "
                    << bound;
    }
  }
  if (failures > 5) ADD_FAILURE() << what << ": " << failures << " of " << got.size() << " differ";
}

Tolerance RoundingOf(DType type, double inner) {
  // Half a unit in the last place of a significand of 8 or 24 bits, doubled for safety.
  const double unit = type == DType::kBF16 ? 0x1p-8 : 0x1p-23;
  return {unit, inner * unit};
}

std::vector<DType> ComputeTypes() {
  return CpuHasBf16() ? std::vector{DType::kF32, DType::kBF16} : std::vector{DType::kF32};
}

double Dot(const Doubles& a, const Doubles& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace millrace
