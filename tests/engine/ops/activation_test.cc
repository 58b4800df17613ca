#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "tests/engine/ops/op_test_util.h"

namespace millrace {
namespace {

struct Function {
  ActivationKind kind;
  bool gated;
};
double ValueOf(ActivationKind kind, double x) {
  switch (kind) {
    case ActivationKind::kSilu:
      return x / (1 + std::exp(-x));
    case ActivationKind::kGelu:
      return x / 2 * std::erfc(-x / std::sqrt(2));
    case ActivationKind::kGeluTanh:
      return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case ActivationKind::kRelu:
      return x > 0 ? x : 0;
  }
  return NAN;
}

// y of all rows; a gated function's are gates, then ups.
Doubles Activate(const Function& function, int64_t tokens, int64_t width, const Doubles& x) {
  Doubles y(tokens * width);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t i = 0; i < width; ++i) {
      if (!function.gated) {
        y[t * width + i] = ValueOf(function.kind, x[t * width + i]);
      } else {
        y[t * width + i] =
            ValueOf(function.kind, x[t * 2 * width + i]) * x[t * 2 * width + width + i];
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

const ActivationKind kKinds[] = {ActivationKind::kSilu, ActivationKind::kGelu,
                                 ActivationKind::kGeluTanh, ActivationKind::kRelu};

std::vector<Function> AllFunctions() {
  std::vector<Function> functions;
  for (const ActivationKind kind : kKinds) {
    functions.push_back({kind, false});
    functions.push_back({kind, true});
  }
  return functions;
}

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
                     testing::ValuesIn(AllFunctions()),
                     testing::Values(Sizes{1, 1}, Sizes{3, 17}, Sizes{17, 80}, Sizes{130, 257})));

// f(values) and f'(values).
struct Curve {
  Doubles value, slope;
};
Curve CurveOf(ActivationKind kind, DType type, const Doubles& values) {
  const auto count = static_cast<int64_t>(values.size());
  const Tensor x(type, values), dy(type, Doubles(values.size(), 1));
  Tensor y(type, count), dx(type, count);
  Rig rig(type, 1, {});
  EXPECT_TRUE(rig.Run(Activation{.kind = kind,
                                 .gated = false,
                                 .tokens = 1,
                                 .width = count,
                                 .x = x.data(),
                                 .y = y.data(),
                                 .dy = dy.data(),
                                 .dx = dx.data()})
                  .ok());
  return {y.values(), dx.values()};
}

TEST(ActivationExtremesTest, HugeInputsSaturateAndNanStays) {
  for (const ActivationKind kind : kKinds) {
    for (const DType type : ComputeTypes()) {
      SCOPED_TRACE(static_cast<int>(kind));
      const Doubles values = {1e30, -1e30, 1e4, -1e4, 0, 1e-30, NAN};
      const Doubles x = Tensor(type, values).values();
      const auto [got, slope] = CurveOf(kind, type, values);
      EXPECT_EQ(got[0], x[0]);
      EXPECT_EQ(got[2], x[2]);
      for (const int i : {1, 3, 4}) EXPECT_NEAR(got[i], 0, 1e-3);
      EXPECT_NEAR(slope[0], 1, 1e-3);
      EXPECT_NEAR(slope[1], 0, 1e-3);
      EXPECT_NEAR(slope[4], kind == ActivationKind::kRelu ? 0 : 0.5, 1e-6);
      EXPECT_TRUE(std::isnan(got[6]));
      EXPECT_EQ(std::isnan(slope[6]), kind != ActivationKind::kRelu);
    }
  }
}

TEST(ActivationAccuracyTest, IsThatOfSinglePrecision) {
  Doubles values;
  for (int i = -4096; i <= 4096; ++i) values.push_back(i * 0x1p-8);
  for (const ActivationKind kind : kKinds) {
    const auto [got, slope] = CurveOf(kind, DType::kF32, values);
    for (size_t i = 0; i < values.size(); ++i) {
      const double x = values[i], step = 1e-5;
      EXPECT_NEAR(got[i], ValueOf(kind, x), 5e-7 * std::max(1.0, std::abs(x))) << x;
      if (kind == ActivationKind::kRelu && x == 0) continue;
      const double want = (ValueOf(kind, x + step) - ValueOf(kind, x - step)) / (2 * step);
      EXPECT_NEAR(slope[i], want, 2e-6) << x;
    }
  }
}

}  // namespace
}  // namespace millrace
