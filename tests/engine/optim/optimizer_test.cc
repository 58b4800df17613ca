#include "engine/optim/optimizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/base/aligned_buffer.h"
#include "engine/base/random.h"
#include "engine/optim/dither.h"
#include "hwy/targets.h"

namespace millrace {
namespace {

constexpr int64_t kNorm = 300;        // no decay, ends inside a page
constexpr int64_t kMatrix = 61 * 97;  // decays, odd sizes
constexpr int64_t kMatrixOffset = 320;
constexpr int64_t kCount = 2048 * 4;

SlabLayout Layout(UnitKind kind) {
  SlabLayout layout{.kind = kind, .index = 1};
  layout.tensors = {
      {.role = TensorRole::kAttentionNorm, .rows = kNorm, .columns = 1, .offset = 0},
      {.role = TensorRole::kQkv, .rows = 61, .columns = 97, .offset = kMatrixOffset, .decay = true},
      {.role = TensorRole::kMlpNorm, .rows = kNorm, .columns = 1, .offset = kMatrixOffset + 5920}};
  layout.count = kCount;
  return layout;
}

bool Decays(int64_t i) { return i >= kMatrixOffset && i < kMatrixOffset + kMatrix; }

// Everything but padding.
void ForEachElement(const SlabLayout& layout, const std::function<void(int64_t)>& function) {
  for (const TensorLayout& tensor : layout.tensors) {
    for (int64_t i = 0; i < tensor.count(); ++i) function(tensor.offset + i);
  }
}

// The gradient of a unit.
class Gradient {
 public:
  explicit Gradient(DType dtype) : dtype_(dtype) {
    auto buffer = AlignedBuffer::Allocate(kCount * SizeOf(dtype), "gradients");
    EXPECT_TRUE(buffer.ok());
    buffer_ = *std::move(buffer);
  }

  void Set(int64_t i, float value) {
    if (dtype_ == DType::kBF16) {
      buffer_.as<BFloat16>()[i] = BFloat16::FromFloat(value);
    } else {
      buffer_.as<float>()[i] = value;
    }
  }
  double At(int64_t i) const {
    return dtype_ == DType::kBF16 ? buffer_.as<BFloat16>()[i].ToFloat() : buffer_.as<float>()[i];
  }
  GradientSlab slab() { return {buffer_.data(), dtype_}; }

 private:
  DType dtype_;
  AlignedBuffer buffer_;
};

OptimizerStep StepAt(int64_t t) {
  OptimizerStep step;
  step.step = t;
  step.learning_rate = 3e-3;
  step.params = {
      .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .momentum = 0.8, .weight_decay = 0.1};
  step.seed = 11;
  return step;
}

// The formulas of optimizer.h for one element, in double.
void Reference(OptimizerKind kind, const OptimizerStep& step, bool decays, double g, double& w,
               double& m, double& v) {
  const OptimizerParams& p = step.params;
  const double lr = step.learning_rate, t = static_cast<double>(step.step);
  if (decays) w -= lr * p.weight_decay * w;
  switch (kind) {
    case OptimizerKind::kAdamW: {
      m = p.beta1 * m + (1 - p.beta1) * g;
      v = p.beta2 * v + (1 - p.beta2) * g * g;
      const double m_hat = m / (1 - std::pow(p.beta1, t)), v_hat = v / (1 - std::pow(p.beta2, t));
      w -= lr * m_hat / (std::sqrt(v_hat) + p.epsilon);
      return;
    }
    case OptimizerKind::kSgd:
      m = p.momentum * m + g;
      w -= lr * m;
      return;
    case OptimizerKind::kLion: {
      const double c = p.beta1 * m + (1 - p.beta1) * g;
      w -= c > 0 ? lr : c < 0 ? -lr : 0;
      m = p.beta2 * m + (1 - p.beta2) * g;
      return;
    }
  }
}

// A moment as it is kept.
double MomentAt(HostState& state, int unit, bool second, int64_t i) {
  if (!HasQuantizedMoments(state.recipe())) {
    const float* values = second ? state.second_moment(unit) : state.first_moment(unit);
    return values == nullptr ? 0 : values[i];
  }
  const QuantizedMoment codes = second ? state.second_codes(unit) : state.first_codes(unit);
  if (codes.codes == nullptr) return 0;
  return DecodeMoment(second ? kSecondMomentCode : kFirstMomentCode, codes.codes[i],
                      codes.exponents[i / kMomentBlock]);
}

struct Format {
  Recipe recipe;
  DType compute;
  UnitKind kind;  // an embedding has f32 gradients beside bf16 weights
};

class OptimizerTest : public testing::TestWithParam<std::tuple<Format, OptimizerKind>> {
 protected:
  // Unit 1 is worked on; unit 0 moves its elements' numbers in the model.
  static constexpr int kUnit = 1;

  Format format() const { return std::get<0>(GetParam()); }
  OptimizerKind kind() const { return std::get<1>(GetParam()); }

  std::unique_ptr<HostState> Make(ThreadPool& pool) {
    auto state = HostState::Create({Layout(UnitKind::kBlock), Layout(format().kind)},
                                   format().recipe, format().compute, pool, kind());
    EXPECT_TRUE(state.ok()) << state.status();
    std::vector<float> weights(kCount, 0.0f);
    const CounterRandom random(1, 0);
    ForEachElement(Layout(format().kind),
                   [&](int64_t i) { weights[i] = static_cast<float>(0.02 * random.Normal(i)); });
    (*state)->WriteMaster(kUnit, 0, weights);
    return std::move(*state);
  }

  Gradient ZeroGradient() {
    return Gradient(GradientDType(Layout(format().kind), format().compute));
  }
  Gradient DrawGradient(int64_t step) {
    Gradient gradient = ZeroGradient();
    const CounterRandom random(2, static_cast<uint64_t>(step));
    ForEachElement(Layout(format().kind), [&](int64_t i) {
      gradient.Set(i, static_cast<float>(random.Normal(i) * 1e-2));
    });
    return gradient;
  }

  void ExpectFollowsReference(int64_t steps);

  std::vector<float> WeightsOf(const HostState& state) {
    std::vector<float> weights(kCount);
    state.ReadMaster(kUnit, 0, absl::MakeSpan(weights));
    return weights;
  }
};

// Each step by itself, from the state as it is kept.
void OptimizerTest::ExpectFollowsReference(int64_t steps) {
  ThreadPool pool(2);
  std::unique_ptr<HostState> state = Make(pool);
  const double factor = 0.37;
  int64_t other_roundings = 0;
  for (int64_t t = 1; t <= steps; ++t) {
    Gradient gradient = DrawGradient(t);
    const OptimizerStep step = StepAt(t);
    std::vector<double> w(kCount), m(kCount), v(kCount);
    const std::vector<float> before = WeightsOf(*state);
    for (int64_t i = 0; i < kCount; ++i) {
      w[i] = before[i];
      m[i] = MomentAt(*state, kUnit, false, i);
      v[i] = MomentAt(*state, kUnit, true, i);
      Reference(kind(), step, Decays(i), factor * gradient.At(i), w[i], m[i], v[i]);
    }
    UpdateUnit(*state, kUnit, gradient.slab(), step, factor, pool);

    const std::vector<float> after = WeightsOf(*state);
    ForEachElement(state->layout(kUnit), [&](int64_t i) {
      const RoundingKey key{step.seed, step.step};
      const uint64_t element = static_cast<uint64_t>(state->first_element(kUnit) + i);
      if (state->weight_format() == WeightFormat::kBF16) {
        const BFloat16 rounded{
            RoundStochastically(static_cast<float>(w[i]), WeightDither(key, element))};
        // The f32 that is rounded may be another by its last bits.
        other_roundings += rounded.ToFloat() != after[i];
        ASSERT_NEAR(after[i], w[i], std::fabs(w[i]) / 128 + 1e-9) << i;
      } else {
        ASSERT_NEAR(after[i], w[i], 1e-6 * std::fabs(w[i]) + 3e-9) << i;
      }
      if (!HasQuantizedMoments(state->recipe())) {
        ASSERT_NEAR(state->first_moment(kUnit)[i], m[i], 1e-6 * std::fabs(m[i]) + 1e-9) << i;
        if (HasSecondMoment(kind())) {
          ASSERT_NEAR(state->second_moment(kUnit)[i], v[i], 1e-6 * v[i]) << i;
        }
        return;
      }
      const int64_t block = i / kMomentBlock * kMomentBlock;
      const auto expect_code = [&](MomentCode code, const QuantizedMoment& have,
                                   const std::vector<double>& want, uint16_t dither) {
        double largest = 0;
        for (int64_t j = block; j < block + kMomentBlock; ++j) {
          largest = std::max(largest, std::fabs(want[j]));
        }
        const uint8_t exponent = MomentExponent(static_cast<float>(largest));
        ASSERT_EQ(have.exponents[i / kMomentBlock], exponent);
        const uint8_t expected = EncodeMoment(code, static_cast<float>(want[i]), exponent, dither);
        other_roundings += have.codes[i] != expected;
        ASSERT_LE(std::abs(have.codes[i] - expected), 1) << i;
      };
      const uint32_t dither = MomentDither(key, element);
      expect_code(kFirstMomentCode, state->first_codes(kUnit), m, dither >> 16);
      if (HasSecondMoment(kind())) {
        expect_code(kSecondMomentCode, state->second_codes(kUnit), v, dither & 0xffff);
      }
    });
  }
  EXPECT_LT(other_roundings, steps * kCount / 1000);
}

TEST_P(OptimizerTest, AStepFollowsADoublePrecisionReference) { ExpectFollowsReference(20); }

TEST_P(OptimizerTest, AStepFollowsItInVectorsOfEveryWidth) {
  const int64_t all = hwy::SupportedTargets();
  for (int64_t rest = all; rest != 0; rest &= rest - 1) {
    const int64_t target = rest & -rest;
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    ExpectFollowsReference(2);
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(all);
}

TEST_P(OptimizerTest, IsBitwiseTheSameForAnyNumberOfThreads) {
  ThreadPool one(1);
  std::unique_ptr<HostState> expected = Make(one);
  for (int64_t t = 1; t <= 3; ++t) {
    UpdateUnit(*expected, kUnit, DrawGradient(t).slab(), StepAt(t), 0.9, one);
  }
  for (int threads : {2, 3, 4}) {
    ThreadPool pool(threads);
    std::unique_ptr<HostState> state = Make(pool);
    for (int64_t t = 1; t <= 3; ++t) {
      UpdateUnit(*state, kUnit, DrawGradient(t).slab(), StepAt(t), 0.9, pool);
    }
    EXPECT_EQ(state->Slabs(kUnit), expected->Slabs(kUnit));
  }
}

TEST_P(OptimizerTest, DecaysMatricesAndLeavesNormsAlone) {
  ThreadPool pool(2);
  std::unique_ptr<HostState> state = Make(pool);
  const std::vector<float> before = WeightsOf(*state);
  Gradient zero = ZeroGradient();
  UpdateUnit(*state, kUnit, zero.slab(), StepAt(1), 1.0, pool);
  const std::vector<float> after = WeightsOf(*state);
  ForEachElement(state->layout(kUnit), [&](int64_t i) {
    const float decayed = before[i] * static_cast<float>(1 - 3e-3 * 0.1);
    if (!Decays(i)) {
      ASSERT_EQ(after[i], before[i]) << i;
    } else if (state->weight_format() == WeightFormat::kBF16) {
      ASSERT_NEAR(after[i], decayed, std::fabs(decayed) / 128) << i;
    } else {
      ASSERT_EQ(after[i], decayed) << i;
    }
  });
}

TEST_P(OptimizerTest, PaddingStaysZero) {
  ThreadPool pool(2);
  std::unique_ptr<HostState> state = Make(pool);
  for (int64_t t = 1; t <= 3; ++t) {
    UpdateUnit(*state, kUnit, DrawGradient(t).slab(), StepAt(t), 1.0, pool);
  }
  const std::vector<float> after = WeightsOf(*state);
  const auto expect_zero = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      ASSERT_EQ(after[i], 0.0f);
      ASSERT_EQ(MomentAt(*state, kUnit, false, i), 0);
      ASSERT_EQ(MomentAt(*state, kUnit, true, i), 0);
    }
  };
  expect_zero(kNorm, kMatrixOffset);
  expect_zero(kMatrixOffset + 5920 + kNorm, kCount);
}

// Each step changes a weight by far less than one bf16 unit. An fp32 master keeps that; without
// one, stochastic rounding keeps it on average.
TEST_P(OptimizerTest, SmallUpdatesAddUp) {
  ThreadPool pool(2);
  std::unique_ptr<HostState> state = Make(pool);
  state->WriteMaster(kUnit, kMatrixOffset, std::vector<float>(kMatrix, 1.0f));
  Gradient gradient = ZeroGradient();
  for (int64_t i = 0; i < kMatrix; ++i) gradient.Set(kMatrixOffset + i, 1.0f);
  for (int64_t t = 1; t <= 1000; ++t) {
    OptimizerStep step = StepAt(t);
    step.params.weight_decay = 0;
    step.params.momentum = 0;
    step.learning_rate = 1e-5;
    UpdateUnit(*state, kUnit, gradient.slab(), step, 1.0, pool);
  }
  const std::vector<float> after = WeightsOf(*state);
  double mean = 0;
  for (int64_t i = 0; i < kMatrix; ++i) mean += after[kMatrixOffset + i] / kMatrix;
  EXPECT_NEAR(mean, 1.0 - 1000 * 1e-5, state->weight_format() == WeightFormat::kBF16 ? 4e-4 : 5e-5);
}

class FullPrecisionTest : public OptimizerTest {};

TEST_P(FullPrecisionTest, ManyStepsStayWithTheReference) {
  ThreadPool pool(2);
  std::unique_ptr<HostState> state = Make(pool);
  const std::vector<float> start = WeightsOf(*state);
  std::vector<double> w(start.begin(), start.end()), m(kCount), v(kCount);
  for (int64_t t = 1; t <= 20; ++t) {
    Gradient gradient = DrawGradient(t);
    ForEachElement(state->layout(kUnit), [&](int64_t i) {
      Reference(kind(), StepAt(t), Decays(i), gradient.At(i), w[i], m[i], v[i]);
    });
    UpdateUnit(*state, kUnit, gradient.slab(), StepAt(t), 1.0, pool);
  }
  const std::vector<float> result = WeightsOf(*state);
  int away = 0;
  ForEachElement(state->layout(kUnit),
                 [&](int64_t i) { away += std::fabs(result[i] - w[i]) > 2e-7; });
  // Lion takes the sign of what may be rounding.
  EXPECT_LE(away, kind() == OptimizerKind::kLion ? 3 : 0);
}

std::string NameOfCase(const testing::TestParamInfo<std::tuple<Format, OptimizerKind>>& info) {
  const Format& format = std::get<0>(info.param);
  return std::string(NameOf(format.recipe)) + "_" + std::string(NameOf(format.compute)) +
         (format.kind == UnitKind::kEmbedding ? "_embedding_" : "_block_") +
         std::string(NameOf(std::get<1>(info.param)));
}

const auto kOptimizers =
    testing::Values(OptimizerKind::kAdamW, OptimizerKind::kSgd, OptimizerKind::kLion);

INSTANTIATE_TEST_SUITE_P(
    Formats, FullPrecisionTest,
    testing::Combine(testing::Values(Format{Recipe::kFull, DType::kBF16, UnitKind::kBlock},
                                     Format{Recipe::kFull, DType::kBF16, UnitKind::kEmbedding},
                                     Format{Recipe::kFp32, DType::kF32, UnitKind::kBlock}),
                     kOptimizers),
    NameOfCase);

INSTANTIATE_TEST_SUITE_P(
    Formats, OptimizerTest,
    testing::Combine(testing::Values(Format{Recipe::kFull, DType::kBF16, UnitKind::kBlock},
                                     Format{Recipe::kFull, DType::kBF16, UnitKind::kEmbedding},
                                     Format{Recipe::kFp32, DType::kF32, UnitKind::kBlock},
                                     Format{Recipe::kLean, DType::kBF16, UnitKind::kBlock},
                                     Format{Recipe::kLean, DType::kBF16, UnitKind::kEmbedding},
                                     Format{Recipe::kLean, DType::kF32, UnitKind::kBlock},
                                     Format{Recipe::kTiny, DType::kBF16, UnitKind::kBlock},
                                     Format{Recipe::kTiny, DType::kBF16, UnitKind::kEmbedding}),
                     kOptimizers),
    NameOfCase);

// Weights of one block after each of some steps whose gradients lie a factor of 1e6 apart, their
// squares 1e12.
std::vector<std::vector<float>> WideBlock(Recipe recipe, double beta2, int64_t steps) {
  SlabLayout layout{.kind = UnitKind::kEmbedding};
  layout.tensors = {{.role = TensorRole::kTokenEmbedding, .rows = kMomentBlock}};
  layout.count = 2048;
  ThreadPool pool(1);
  auto state = HostState::Create({layout}, recipe, DType::kF32, pool);
  EXPECT_TRUE(state.ok()) << state.status();
  std::vector<float> gradient(2048);
  std::vector<std::vector<float>> weights(1, std::vector<float>(kMomentBlock));
  for (int64_t t = 1; t <= steps; ++t) {
    const CounterRandom random(5, static_cast<uint64_t>(t));
    for (int64_t i = 0; i < kMomentBlock; ++i) {
      const double scale = std::pow(10.0, -6.0 * static_cast<double>(i) / (kMomentBlock - 1));
      gradient[i] = static_cast<float>(scale * random.Normal(static_cast<uint64_t>(i)));
    }
    OptimizerStep step = StepAt(t);
    step.learning_rate = 1;
    step.params.beta2 = beta2;
    step.params.epsilon = 1e-12;
    UpdateUnit(**state, 0, {gradient.data(), DType::kF32}, step, 1.0, pool);
    weights.emplace_back(kMomentBlock);
    (*state)->ReadMaster(0, 0, absl::MakeSpan(weights.back()));
  }
  return weights;
}

TEST(QuantizedMomentsTest, ABlockOfAnyRangeGetsNoUpdateMuchLargerThanInFullPrecision) {
  for (double beta2 : {0.95, 0.999}) {
    constexpr int64_t kSteps = 500;
    const auto full = WideBlock(Recipe::kFp32, beta2, kSteps);
    const auto lean = WideBlock(Recipe::kLean, beta2, kSteps);
    double largest = 0, excess = 0;
    for (size_t t = 1; t <= kSteps; ++t) {
      for (size_t i = 0; i < kMomentBlock; ++i) {
        const double exact = std::fabs(full[t][i] - full[t - 1][i]);
        largest = std::max(largest, exact);
        excess = std::max(excess, std::fabs(lean[t][i] - lean[t - 1][i]) - exact);
      }
    }
    // The largest update of full precision is some 3 learning rates.
    EXPECT_GT(largest, 1);
    EXPECT_LT(excess, 1) << "beta2 " << beta2;
  }
}

// What torch.optim.SGD(lr=0.1, momentum=0.9) makes of the weights 1, -2, 0.5 with gradients
// (0.5, -1, 2), (-0.25, 3, 1), (0.125, 0.5, -4), in float32.
TEST(SgdTest, IsTorchs) {
  const float gradients[3][3] = {{0.5f, -1, 2}, {-0.25f, 3, 1}, {0.125f, 0.5f, -4}};
  const float expected[3][3] = {
      {0.95f, -1.9f, 0.3f}, {0.93f, -2.11f, 0.02f}, {0.8995f, -2.349f, 0.168f}};
  SlabLayout layout{.kind = UnitKind::kEmbedding};
  layout.tensors = {{.role = TensorRole::kTokenEmbedding, .rows = 3, .decay = true}};
  layout.count = 2048;
  ThreadPool pool(1);
  auto state = HostState::Create({layout}, Recipe::kFp32, DType::kF32, pool, OptimizerKind::kSgd);
  ASSERT_TRUE(state.ok());
  (*state)->WriteMaster(0, 0, std::vector<float>{1, -2, 0.5f});
  for (int t = 0; t < 3; ++t) {
    std::vector<float> gradient(2048), weights(3);
    std::copy_n(gradients[t], 3, gradient.begin());
    OptimizerStep step = StepAt(t + 1);
    step.learning_rate = 0.1;
    step.params.momentum = 0.9;
    step.params.weight_decay = 0;
    UpdateUnit(**state, 0, {gradient.data(), DType::kF32}, step, 1.0, pool);
    (*state)->ReadMaster(0, 0, absl::MakeSpan(weights));
    for (int i = 0; i < 3; ++i) EXPECT_NEAR(weights[i], expected[t][i], 1e-6);
  }
}

}  // namespace
}  // namespace millrace
