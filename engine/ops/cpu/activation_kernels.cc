#include "engine/ops/cpu/activation_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/cpu/activation_kernels.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, as Highway wants it.
#include "engine/ops/vector-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace millrace {
namespace HWY_NAMESPACE {

// y = silu(g) · u with σ = sigmoid(g), silu(g) = g · σ;
// du = dy · silu(g), dg = dy · u · σ · (1 + g · (1 − σ)).
template <typename T>
void SwiGlu(const Activation& op, int64_t begin, int64_t end) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  const size_t width = op.width;
  const auto one = hn::Set(d, 1.0f);
  for (int64_t token = begin; token < end; ++token) {
    const T* gate = static_cast<const T*>(op.x) + token * 2 * op.width;
    const T* up = gate + op.width;
    T* y = op.y == nullptr ? nullptr : static_cast<T*>(op.y) + token * op.width;
    const T* dy = op.dx == nullptr ? nullptr : static_cast<const T*>(op.dy) + token * op.width;
    T* dgate = op.dx == nullptr ? nullptr : static_cast<T*>(op.dx) + token * 2 * op.width;
    for (size_t i = 0; i < width; i += lanes) {
      const size_t left = width - i;
      const auto g = Load(d, gate + i, left), u = Load(d, up + i, left);
      const auto sigmoid = BoundedSigmoid(d, Clamp(d, g, 80.0f));
      const auto silu = hn::Mul(g, sigmoid);
      if (dy != nullptr) {
        const auto dy_v = Load(d, dy + i, left);
        const auto slope = hn::Mul(sigmoid, hn::MulAdd(g, hn::Sub(one, sigmoid), one));
        Store(hn::Mul(hn::Mul(dy_v, u), slope), d, dgate + i, left);
        Store(hn::Mul(dy_v, silu), d, dgate + width + i, left);
      }
      if (y != nullptr) Store(hn::Mul(silu, u), d, y + i, left);
    }
  }
}

// y = x/2 · (1 + tanh(u)) = x · σ(2u) with u = √(2/π) · (x + 0.044715 x³);
// dy/dx = σ + x · σ · (1 − σ) · 2u'.
template <typename T>
void GeluTanh(const Activation& op, int64_t begin, int64_t end) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  constexpr float kTwoRoot = 1.5957691216057308f;  // 2 · √(2/π)
  const auto one = hn::Set(d, 1.0f);
  const auto linear = hn::Set(d, kTwoRoot), cubic = hn::Set(d, kTwoRoot * 0.044715f);
  const auto square = hn::Set(d, 3.0f * kTwoRoot * 0.044715f);
  // Beyond this σ is 0 or 1.
  constexpr float kBound = 9.5f;
  const T* x = static_cast<const T*>(op.x);
  T* y = static_cast<T*>(op.y);
  const T* dy = static_cast<const T*>(op.dy);
  T* dx = static_cast<T*>(op.dx);
  const size_t stop = end * op.width;
  for (size_t i = begin * op.width; i < stop; i += lanes) {
    const size_t left = stop - i;
    const auto v = Load(d, x + i, left);
    const auto b = Clamp(d, v, kBound);
    const auto b2 = hn::Mul(b, b);
    const auto sigmoid = BoundedSigmoid(d, hn::Mul(b, hn::MulAdd(b2, cubic, linear)));
    if (dx != nullptr) {
      const auto slope = hn::MulAdd(b2, square, linear);
      const auto bell = hn::Mul(hn::Mul(b, sigmoid), hn::Sub(one, sigmoid));
      Store(hn::Mul(Load(d, dy + i, left), hn::MulAdd(bell, slope, sigmoid)), d, dx + i, left);
    }
    if (y != nullptr) Store(hn::Mul(v, sigmoid), d, y + i, left);
  }
}

// (a, b) <- (a · cos − b · sin, b · cos + a · sin), the sine's sign turned for the backward pass.
template <typename T>
void Rotate(const Rotary& op, int64_t begin, int64_t end) {
  const DF d;
  const int64_t lanes = hn::Lanes(d);
  const int64_t half = op.rotary_width / 2;
  const float sign = op.backward ? -1.0f : 1.0f;
  for (int64_t token = begin; token < end; ++token) {
    const float* table = op.cos_sin_table + op.positions[token] * op.rotary_width;
    T* row = static_cast<T*>(op.x) + token * op.row_stride;
    for (int64_t head = 0; head < op.heads; ++head) {
      T* a = row + head * op.head_dim;
      T* b = a + half;
      int64_t i = 0;
      for (; i + lanes <= half; i += lanes) {
        VF cosine, sine;
        hn::LoadInterleaved2(d, table + 2 * i, cosine, sine);
        sine = hn::Mul(sine, hn::Set(d, sign));
        const auto va = LoadFull(d, a + i), vb = LoadFull(d, b + i);
        StoreFull(hn::NegMulAdd(vb, sine, hn::Mul(va, cosine)), d, a + i);
        StoreFull(hn::MulAdd(va, sine, hn::Mul(vb, cosine)), d, b + i);
      }
      if (i < half) {
        HWY_ALIGN float cosines[HWY_MAX_BYTES / 4] = {}, sines[HWY_MAX_BYTES / 4] = {};
        for (int64_t j = i; j < half; ++j) {
          cosines[j - i] = table[2 * j];
          sines[j - i] = sign * table[2 * j + 1];
        }
        const auto cosine = hn::Load(d, cosines), sine = hn::Load(d, sines);
        const auto va = Load(d, a + i, half - i), vb = Load(d, b + i, half - i);
        Store(hn::NegMulAdd(vb, sine, hn::Mul(va, cosine)), d, a + i, half - i);
        Store(hn::MulAdd(va, sine, hn::Mul(vb, cosine)), d, b + i, half - i);
      }
    }
  }
}

template <typename T>
void ActivateImpl(const Activation& op, int64_t begin, int64_t end) {
  op.gated ? SwiGlu<T>(op, begin, end) : GeluTanh<T>(op, begin, end);
}

void Activate(const Activation& op, DType type, int64_t begin, int64_t end) {
  type == DType::kBF16 ? ActivateImpl<BFloat16>(op, begin, end)
                       : ActivateImpl<float>(op, begin, end);
}

void RotateAny(const Rotary& op, DType type, int64_t begin, int64_t end) {
  type == DType::kBF16 ? Rotate<BFloat16>(op, begin, end) : Rotate<float>(op, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace {

HWY_EXPORT(Activate);
HWY_EXPORT(RotateAny);

void ActivationRows(const Activation& op, DType type, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(Activate)(op, type, begin, end);
}

void RotaryRows(const Rotary& op, DType type, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(RotateAny)(op, type, begin, end);
}

}  // namespace millrace
#endif  // HWY_ONCE
