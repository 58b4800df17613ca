// What the tests of ops share: tensors with guarded ends, a device with ops on it, and comparison
// with double-precision references.
#ifndef MILLRACE_TESTS_ENGINE_OPS_OP_TEST_UTIL_H_
#define MILLRACE_TESTS_ENGINE_OPS_OP_TEST_UTIL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/base/thread_pool.h"
#include "engine/device/device.h"
#include "engine/ops/ops.h"

namespace millrace {

using Doubles = std::vector<double>;

// Uniform numbers in [-1, 1) · scale + shift, the same for the same seed.
Doubles RandomDoubles(int64_t count, uint64_t seed, double scale = 1, double shift = 0);

// Elements of `type` between guards; the destructor fails the test when a guard was written.
class Tensor {
 public:
  // Elements start as garbage (NaN), `offset_bytes` past a 4 KiB boundary.
  Tensor(DType type, int64_t count, size_t offset_bytes = 64);
  // Elements are `values`, rounded to `type`.
  Tensor(DType type, const Doubles& values, size_t offset_bytes = 64);
  ~Tensor();
  Tensor(Tensor&&) = default;

  void* data() { return data_; }
  const void* data() const { return data_; }
  template <typename T>
  T* as() {
    return reinterpret_cast<T*>(data_);
  }
  DType type() const { return type_; }
  int64_t size() const { return count_; }

  // The elements as they are, that is after rounding.
  Doubles values() const;
  // The bytes, for comparison bit by bit.
  std::string bytes() const;

 private:
  std::unique_ptr<std::byte[]> memory_;
  std::byte* data_;
  DType type_;
  int64_t count_;
};

// A CPU device with ops on it.
struct Rig {
  Rig(DType compute, int threads, const OpsLimits& limits);
  // Runs one op; its status.
  template <typename Op>
  absl::Status Run(const Op& op) {
    ops->Run(*stream, op);
    return stream->Synchronize();
  }

  ThreadPool pool;
  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Ops> ops;
  std::unique_ptr<Tensor> workspace;
};

// Every |got − want| <= relative · |want| + absolute · (largest |want|).
struct Tolerance {
  double relative, absolute;
};
void ExpectClose(const Doubles& got, const Doubles& want, Tolerance tolerance, const char* what);
// What one rounding of the result explains, and `inner` more for roundings of intermediate values,
// in units of the type's rounding error.
Tolerance RoundingOf(DType type, double inner);

// bf16 where this CPU multiplies it.
std::vector<DType> ComputeTypes();

// Σ a·b
double Dot(const Doubles& a, const Doubles& b);

// Central differences of `f`, a function of `x`, in double.
template <typename F>
Doubles FiniteDifferences(Doubles x, const F& f, double step = 1e-5) {
  Doubles gradient(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const double old = x[i];
    x[i] = old + step;
    const double above = f(x);
    x[i] = old - step;
    const double below = f(x);
    x[i] = old;
    gradient[i] = (above - below) / (2 * step);
  }
  return gradient;
}

}  // namespace millrace

#endif  // MILLRACE_TESTS_ENGINE_OPS_OP_TEST_UTIL_H_
