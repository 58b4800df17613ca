#include "engine/optim/gradient_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "engine/base/random.h"

namespace millrace {
namespace {

std::unique_ptr<HostState> StateWithGradient(DType compute, int64_t count, ThreadPool& pool) {
  SlabLayout layout{.kind = UnitKind::kBlock, .index = 0};
  layout.tensors = {
      {.role = TensorRole::kQkv, .rows = count, .columns = 1, .offset = 0, .decay = true}};
  layout.count = count;
  auto state = HostState::Create({layout}, Recipe::kFull, compute, pool);
  EXPECT_TRUE(state.ok());
  const CounterRandom random(3, 0);
  for (int64_t i = 0; i < count; ++i) {
    const float value = static_cast<float>(random.Normal(i));
    if (compute == DType::kBF16) {
      static_cast<BFloat16*>((*state)->Gradient(0))[i] = BFloat16::FromFloat(value);
    } else {
      static_cast<float*>((*state)->Gradient(0))[i] = value;
    }
  }
  return std::move(*state);
}

class GradientNormTest : public testing::TestWithParam<DType> {};

TEST_P(GradientNormTest, IsTheSumOfSquares) {
  ThreadPool pool(2);
  auto state = StateWithGradient(GetParam(), 2048 * 53, pool);
  double expected = 0;
  for (int64_t i = 0; i < state->count(0); ++i) {
    const double g = GetParam() == DType::kBF16
                         ? static_cast<const BFloat16*>(state->Gradient(0))[i].ToFloat()
                         : static_cast<const float*>(state->Gradient(0))[i];
    expected += g * g;
  }
  EXPECT_NEAR(GradientSumOfSquares(*state, 0, pool), expected, 1e-10 * expected);
}

TEST_P(GradientNormTest, IsBitwiseTheSameForAnyNumberOfThreads) {
  ThreadPool one(1);
  auto state = StateWithGradient(GetParam(), 2048 * 53, one);
  const double expected = GradientSumOfSquares(*state, 0, one);
  for (int threads : {2, 3, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(GradientSumOfSquares(*state, 0, pool), expected);
  }
}

TEST_P(GradientNormTest, IsNotFiniteWhenAnElementIsNot) {
  ThreadPool pool(2);
  for (float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    auto state = StateWithGradient(GetParam(), 2048 * 53, pool);
    if (GetParam() == DType::kBF16) {
      static_cast<BFloat16*>(state->Gradient(0))[77777] = BFloat16::FromFloat(bad);
    } else {
      static_cast<float*>(state->Gradient(0))[77777] = bad;
    }
    EXPECT_FALSE(std::isfinite(GradientSumOfSquares(*state, 0, pool)));
  }
}

TEST_P(GradientNormTest, OfTheLargestFiniteElementsDoesNotOverflow) {
  ThreadPool pool(1);
  auto state = StateWithGradient(GetParam(), 2048, pool);
  if (GetParam() == DType::kBF16) {
    static_cast<BFloat16*>(state->Gradient(0))[5] = BFloat16::FromFloat(3e38f);
  } else {
    static_cast<float*>(state->Gradient(0))[5] = 3e38f;
  }
  EXPECT_TRUE(std::isfinite(GradientSumOfSquares(*state, 0, pool)));
}

INSTANTIATE_TEST_SUITE_P(DTypes, GradientNormTest, testing::Values(DType::kBF16, DType::kF32),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

TEST(ClipFactorTest, IsTorchsCoefficient) {
  EXPECT_DOUBLE_EQ(ClipFactor(4.0, 1.0), 1.0 / (4.0 + 1e-6));
  EXPECT_DOUBLE_EQ(ClipFactor(0.5, 1.0), 1.0);
  EXPECT_DOUBLE_EQ(ClipFactor(0.0, 1.0), 1.0);
  EXPECT_DOUBLE_EQ(ClipFactor(100.0, 0.0), 1.0);
}

}  // namespace
}  // namespace millrace
