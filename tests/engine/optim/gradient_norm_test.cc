#include "engine/optim/gradient_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "engine/base/random.h"

namespace millrace {
namespace {

// A unit of one tensor with a gradient of normal numbers.
class Gradient {
 public:
  Gradient(DType dtype, int64_t count) : dtype_(dtype), values_(static_cast<size_t>(count)) {
    layout_.tensors = {{.role = TensorRole::kQkv, .rows = count, .offset = 0, .decay = true}};
    layout_.count = count;
    const CounterRandom random(3, 0);
    for (int64_t i = 0; i < count; ++i) Set(i, static_cast<float>(random.Normal(i)));
  }

  void Set(int64_t i, float value) {
    if (dtype_ == DType::kBF16) {
      static_cast<BFloat16*>(slab().data)[i] = BFloat16::FromFloat(value);
    } else {
      static_cast<float*>(slab().data)[i] = value;
    }
  }
  double At(int64_t i) {
    return dtype_ == DType::kBF16 ? static_cast<const BFloat16*>(slab().data)[i].ToFloat()
                                  : static_cast<const float*>(slab().data)[i];
  }
  const SlabLayout& layout() const { return layout_; }
  GradientSlab slab() { return {values_.data(), dtype_}; }

 private:
  DType dtype_;
  SlabLayout layout_{.kind = UnitKind::kBlock};
  std::vector<float> values_;  // room for either type
};

class GradientNormTest : public testing::TestWithParam<DType> {};

TEST_P(GradientNormTest, IsTheSumOfSquares) {
  ThreadPool pool(2);
  Gradient gradient(GetParam(), 2048 * 53);
  double expected = 0;
  for (int64_t i = 0; i < gradient.layout().count; ++i) expected += gradient.At(i) * gradient.At(i);
  EXPECT_NEAR(GradientSumOfSquares(gradient.layout(), gradient.slab(), pool), expected,
              1e-10 * expected);
}

TEST_P(GradientNormTest, IsBitwiseTheSameForAnyNumberOfThreads) {
  ThreadPool one(1);
  Gradient gradient(GetParam(), 2048 * 53);
  const double expected = GradientSumOfSquares(gradient.layout(), gradient.slab(), one);
  for (int threads : {2, 3, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(GradientSumOfSquares(gradient.layout(), gradient.slab(), pool), expected);
  }
}

TEST_P(GradientNormTest, IsNotFiniteWhenAnElementIsNot) {
  ThreadPool pool(2);
  for (float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    Gradient gradient(GetParam(), 2048 * 53);
    gradient.Set(77777, bad);
    EXPECT_FALSE(std::isfinite(GradientSumOfSquares(gradient.layout(), gradient.slab(), pool)));
  }
}

TEST_P(GradientNormTest, OfTheLargestFiniteElementsDoesNotOverflow) {
  ThreadPool pool(1);
  Gradient gradient(GetParam(), 2048);
  gradient.Set(5, 3e38f);
  EXPECT_TRUE(std::isfinite(GradientSumOfSquares(gradient.layout(), gradient.slab(), pool)));
}

INSTANTIATE_TEST_SUITE_P(DTypes, GradientNormTest, testing::Values(DType::kBF16, DType::kF32),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

TEST(GradientSlabTest, ClearsBetweenTensorsOnly) {
  SlabLayout layout{.kind = UnitKind::kBlock, .index = 1};
  layout.tensors = {
      {.role = TensorRole::kAttentionNorm, .rows = 7, .columns = 1, .offset = 0},
      {.role = TensorRole::kQkv, .rows = 60, .columns = 50, .offset = 32, .decay = true}};
  layout.count = 4096;
  std::vector<uint16_t> gradient(4096, 1);
  ClearGradientPadding(layout, {gradient.data(), DType::kBF16});
  for (int i = 0; i < 4096; ++i) {
    const bool part_of_tensor = i < 7 || (i >= 32 && i < 32 + 3000);
    ASSERT_EQ(gradient[i], part_of_tensor ? 1 : 0) << i;
  }
}

TEST(ClipFactorTest, IsTorchsCoefficient) {
  EXPECT_DOUBLE_EQ(ClipFactor(4.0, 1.0), 1.0 / (4.0 + 1e-6));
  EXPECT_DOUBLE_EQ(ClipFactor(0.5, 1.0), 1.0);
  EXPECT_DOUBLE_EQ(ClipFactor(0.0, 1.0), 1.0);
  EXPECT_DOUBLE_EQ(ClipFactor(100.0, 0.0), 1.0);
}

}  // namespace
}  // namespace millrace
