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

// Each function gives f(x) and, where it is wanted, f'(x).

// f = x · σ(x), f' = σ · (1 + x · (1 − σ)).
struct Silu {
  static HWY_INLINE void Apply(DF d, VF x, bool wants_slope, VF& value, VF& slope) {
    const auto one = hn::Set(d, 1.0f);
    const auto sigmoid = BoundedSigmoid(d, Clamp(d, x, 80.0f));
    value = hn::Mul(x, sigmoid);
    if (wants_slope) slope = hn::Mul(sigmoid, hn::MulAdd(x, hn::Sub(one, sigmoid), one));
  }
};

// f = x · Φ(x), f' = Φ + x · φ with the normal distribution's φ(x) = e^(−x²/2) / √(2π) and, by
// Abramowitz & Stegun 1964, 7.1.26, Φ(−|x|) = erfc(|x|/√2) / 2 = e^(−x²/2) · P(t) / 2
// with t = 1 / (1 + 0.3275911 |x|/√2); its error is under 8e-8.
struct Gelu {
  static HWY_INLINE void Apply(DF d, VF x, bool wants_slope, VF& value, VF& slope) {
    // Beyond this Φ is 0 or 1, and the exponential is still a normal number.
    constexpr float kBound = 13.0f;
    constexpr float kRootHalf = 0.70710678118654752f, kDensityAtZero = 0.39894228040143268f;
    const auto one = hn::Set(d, 1.0f);
    const auto b = Clamp(d, x, kBound);
    const auto bell = BoundedExp(d, hn::Mul(hn::Mul(b, b), hn::Set(d, -0.5f)));
    const auto t = Reciprocal(d, hn::MulAdd(hn::Abs(b), hn::Set(d, 0.3275911f * kRootHalf), one));
    auto p = hn::MulAdd(t, hn::Set(d, 0.5f * 1.061405429f), hn::Set(d, 0.5f * -1.453152027f));
    p = hn::MulAdd(p, t, hn::Set(d, 0.5f * 1.421413741f));
    p = hn::MulAdd(p, t, hn::Set(d, 0.5f * -0.284496736f));
    p = hn::MulAdd(p, t, hn::Set(d, 0.5f * 0.254829592f));
    const auto tail = hn::Mul(hn::Mul(p, t), bell);
    const auto cumulative = hn::IfThenElse(hn::Lt(b, hn::Zero(d)), tail, hn::Sub(one, tail));
    value = hn::Mul(x, cumulative);
    if (wants_slope) {
      slope = hn::MulAdd(hn::Mul(b, hn::Set(d, kDensityAtZero)), bell, cumulative);
    }
  }
};

// f = x/2 · (1 + tanh(u)) = x · σ(2u) with u = √(2/π) · (x + 0.044715 x³);
// f' = σ + x · σ · (1 − σ) · 2u'.
struct GeluTanh {
  static HWY_INLINE void Apply(DF d, VF x, bool wants_slope, VF& value, VF& slope) {
    constexpr float kTwoRoot = 1.5957691216057308f;  // 2 · √(2/π)
    constexpr float kBound = 9.5f;                   // beyond this σ is 0 or 1
    const auto one = hn::Set(d, 1.0f), linear = hn::Set(d, kTwoRoot);
    const auto b = Clamp(d, x, kBound);
    const auto b2 = hn::Mul(b, b);
    const auto cubic = hn::Set(d, kTwoRoot * 0.044715f);
    const auto sigmoid = BoundedSigmoid(d, hn::Mul(b, hn::MulAdd(b2, cubic, linear)));
    value = hn::Mul(x, sigmoid);
    if (wants_slope) {
      const auto inner = hn::MulAdd(b2, hn::Set(d, 3.0f * kTwoRoot * 0.044715f), linear);
      const auto bell = hn::Mul(hn::Mul(b, sigmoid), hn::Sub(one, sigmoid));
      slope = hn::MulAdd(bell, inner, sigmoid);
    }
  }
};

// f = max(x, 0), f' = 1 where x > 0, else 0.
struct Relu {
  static HWY_INLINE void Apply(DF d, VF x, bool wants_slope, VF& value, VF& slope) {
    // Where one operand is NaN, x86 takes the second.
    value = hn::Max(hn::Zero(d), x);
    if (wants_slope) slope = hn::IfThenElseZero(hn::Gt(x, hn::Zero(d)), hn::Set(d, 1.0f));
  }
};

// y = f(x), dx = dy · f'(x); gated y = f(g) · u, dg = dy · u · f'(g), du = dy · f(g).
template <typename Function, typename T>
void ActivateRows(const Activation& op, int64_t begin, int64_t end) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  const size_t width = op.width;
  const int64_t x_row = op.gated ? 2 * op.width : op.width;
  const bool backward = op.dx != nullptr;
  for (int64_t token = begin; token < end; ++token) {
    const T* x = static_cast<const T*>(op.x) + token * x_row;
    const T* up = op.gated ? x + op.width : nullptr;
    T* y = op.y == nullptr ? nullptr : static_cast<T*>(op.y) + token * op.width;
    const T* dy = backward ? static_cast<const T*>(op.dy) + token * op.width : nullptr;
    T* dx = backward ? static_cast<T*>(op.dx) + token * x_row : nullptr;
    for (size_t i = 0; i < width; i += lanes) {
      const size_t left = width - i;
      auto value = hn::Zero(d), slope = value;
      Function::Apply(d, Load(d, x + i, left), backward, value, slope);
      const auto u = up == nullptr ? hn::Set(d, 1.0f) : Load(d, up + i, left);
      if (backward) {
        auto gradient = Load(d, dy + i, left);
        if (up != nullptr) {
          Store(hn::Mul(gradient, value), d, dx + width + i, left);
          gradient = hn::Mul(gradient, u);
        }
        Store(hn::Mul(gradient, slope), d, dx + i, left);
      }
      if (y != nullptr) Store(up == nullptr ? value : hn::Mul(value, u), d, y + i, left);
    }
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
  switch (op.kind) {
    case ActivationKind::kSilu:
      return ActivateRows<Silu, T>(op, begin, end);
    case ActivationKind::kGelu:
      return ActivateRows<Gelu, T>(op, begin, end);
    case ActivationKind::kGeluTanh:
      return ActivateRows<GeluTanh, T>(op, begin, end);
    case ActivationKind::kRelu:
      return ActivateRows<Relu, T>(op, begin, end);
  }
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
