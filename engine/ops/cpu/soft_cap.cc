#include "engine/ops/cpu/soft_cap.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/cpu/soft_cap.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, as Highway wants it.
#include "engine/ops/vector-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace millrace {
namespace HWY_NAMESPACE {

void SoftCapImpl(float* x, int64_t count, float cap) {
  const DF d;
  const int64_t lanes = hn::Lanes(d);
  const auto cap_v = hn::Set(d, cap), inverse = hn::Set(d, 1.0f / cap);
  for (int64_t i = 0; i < count; i += lanes) {
    const int64_t left = count - i;
    Store(hn::Mul(cap_v, Tanh(d, hn::Mul(Load(d, x + i, left), inverse))), d, x + i, left);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace {

HWY_EXPORT(SoftCapImpl);

void SoftCapInPlace(float* x, int64_t count, float cap) {
  HWY_DYNAMIC_DISPATCH(SoftCapImpl)(x, count, cap);
}

}  // namespace millrace
#endif  // HWY_ONCE
