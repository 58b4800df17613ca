#include <cmath>
#include <tuple>

#include "gtest/gtest.h"
#include "tests/engine/ops/op_test_util.h"

namespace millrace {
namespace {

struct Function {
  ActivationKind kind;
  bool gated;
};
constexpr Function kSwiGlu = {ActivationKind::kSilu, true};
constexpr Function kGeluTanh = {ActivationKind::kGeluTanh, false};

double Gelu(double x) {
  return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

// y of one row's elements; a SwiGLU row is gates, then ups.
Doubles Activate(const Function& function, int64_t tokens, int64_t width, const Doubles& x) {
  Doubles y(tokens * width);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t i = 0; i < width; ++i) {
      if (!function.gated) {
        y[t * width + i] = Gelu(x[t * width + i]);
      } else {
        const double gate = x[t * 2 * width + i], up = x[t * 2 * width + width + i];
        y[t * width + i] = gate / (1 + std::exp(-gate)) * up;
      }
    }
  }
  return y;
}

// Elements do not mix, so differences of all at once give each one's derivative.
Doubles Differentiate(const Function& function, int64_t tokens, int64_t width, const Doubles& x,
                      const Doubles& dy) {
  const double step = 1e-5;
  const int64_t parts = function.gated ? 2 : 1;
  Doubles dx(x.size());
  for (int64_t part = 0; part < parts; ++part) {
    Doubles above = x, below = x;
    for (int64_t i = 0; i < tokens * width; ++i) {
      const int64_t at = i / width * parts * width + part * width + i % width;
      above[at] += step;
      below[at] -= step;
    }
    const Doubles y1 = Activate(function, tokens, width, above);
    const Doubles y0 = Activate(function, tokens, width, below);
    for (int64_t i = 0; i < tokens * width; ++i) {
      dx[i / width * parts * width + part * width + i % width] =
          dy[i] * (y1[i] - y0[i]) / (2 * step);
    }
  }
  return dx;
}

struct Sizes {
  int64_t tokens, width;
};

class ActivationTest : public testing::TestWithParam<std::tuple<DType, int, Function, Sizes>> {};

TEST_P(ActivationTest, MatchesReferenceForwardAndBackward) {
  const auto [type, threads, function, sizes] = GetParam();
  const auto [tokens, width] = sizes;
  const int64_t in = function.gated ? 2 * width : width;
  Tensor x(type, RandomDoubles(tokens * in, 1, 6));
  const Tensor dy(type, RandomDoubles(tokens * width, 2));
  const Doubles want = Activate(function, tokens, width, x.values());
  const Doubles want_dx = Differentiate(function, tokens, width, x.values(), dy.values());
  const Tolerance tolerance = RoundingOf(type, type == DType::kBF16 ? 1e-3 : 16);

  Rig rig(type, threads, {.tokens = tokens});
  Tensor y(type, tokens * width), again(type, tokens * width), dx(type, tokens * in);
  ASSERT_TRUE(rig.Run(Activation{.kind = function.kind,
                                 .gated = function.gated,
                                 .tokens = tokens,
                                 .width = width,
                                 .x = x.data(),
                                 .y = y.data()})
                  .ok());
  ExpectClose(y.values(), want, tolerance, "y");
  ASSERT_TRUE(rig.Run(Activation{.kind = function.kind,
                                 .gated = function.gated,
                                 .tokens = tokens,
                                 .width = width,
                                 .x = x.data(),
                                 .y = again.data(),
                                 .dy = dy.data(),
                                 .dx = dx.data()})
                  .ok());
  ExpectClose(dx.values(), want_dx, tolerance, "dx");
  EXPECT_EQ(again.bytes(), y.bytes());
  ASSERT_TRUE(rig.Run(Activation{.kind = function.kind,
                                 .gated = function.gated,
                                 .tokens = tokens,
                                 .width = width,
                                 .x = x.data(),
                                 .dy = dy.data(),
                                 .dx = x.data()})
                  .ok());
  EXPECT_EQ(x.bytes(), dx.bytes()) << "in place";
}

INSTANTIATE_TEST_SUITE_P(
    Sizes, ActivationTest,
    testing::Combine(testing::ValuesIn(ComputeTypes()), testing::Values(1, 2, 3),
                     testing::Values(kSwiGlu, kGeluTanh),
                     testing::Values(Sizes{1, 1}, Sizes{3, 17}, Sizes{17, 80}, Sizes{130, 257})));

TEST(ActivationExtremesTest, HugeInputsSaturateAndNanStays) {
  for (const DType type : ComputeTypes()) {
    const Doubles values = {1e30, -1e30, 1e4, -1e4, 0, 1e-30, NAN};
    const auto count = static_cast<int64_t>(values.size());
    Tensor x(type, values), y(type, count), dx(type, count);
    const Tensor dy(type, Doubles(values.size(), 1));
    Rig rig(type, 1, {});
    ASSERT_TRUE(rig.Run(Activation{.kind = ActivationKind::kGeluTanh,
                                   .gated = false,
                                   .tokens = 1,
                                   .width = count,
                                   .x = x.data(),
                                   .y = y.data(),
                                   .dy = dy.data(),
                                   .dx = dx.data()})
                    .ok());
    const Doubles got = y.values(), slope = dx.values();
    EXPECT_EQ(got[0], x.values()[0]);
    EXPECT_EQ(got[2], x.values()[2]);
    for (const int i : {1, 3, 4}) EXPECT_NEAR(got[i], 0, 1e-3);
    EXPECT_NEAR(slope[0], 1, 1e-3);
    EXPECT_NEAR(slope[1], 0, 1e-3);
    EXPECT_NEAR(slope[4], 0.5, 1e-6);
    EXPECT_TRUE(std::isnan(got[6]));
    EXPECT_TRUE(std::isnan(slope[6]));
  }
}

}  // namespace
}  // namespace millrace
