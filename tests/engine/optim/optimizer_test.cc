#include "engine/optim/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/base/aligned_buffer.h"
#include "engine/base/random.h"
#include "engine/state/split_master.h"

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

// Fills everything but padding.
void ForEachElement(const SlabLayout& layout, const std::function<void(int64_t)>& function) {
  for (const TensorLayout& tensor : layout.tensors) {
    for (int64_t i = 0; i < tensor.count(); ++i) function(tensor.offset + i);
  }
}

// The gradient of unit 0.
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
  step.adamw = {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
  return step;
}

// Compute type and kind of unit: an embedding has f32 gradients beside a split master.
class OptimizerTest : public testing::TestWithParam<std::tuple<DType, UnitKind>> {
 protected:
  std::unique_ptr<HostState> Make(ThreadPool& pool) {
    const auto [compute, kind] = GetParam();
    auto state = HostState::Create({Layout(kind)}, Recipe::kFull, compute, pool);
    EXPECT_TRUE(state.ok());
    std::vector<float> weights(kCount, 0.0f);
    const CounterRandom random(1, 0);
    ForEachElement(Layout(kind),
                   [&](int64_t i) { weights[i] = static_cast<float>(0.02 * random.Normal(i)); });
    (*state)->WriteMaster(0, 0, weights);
    return std::move(*state);
  }

  Gradient DrawGradient(int64_t step) {
    const auto [compute, kind] = GetParam();
    Gradient gradient(GradientDType(Layout(kind), compute));
    const CounterRandom random(2, step);
    ForEachElement(Layout(kind), [&](int64_t i) {
      gradient.Set(i, static_cast<float>(random.Normal(i) * 1e-2));
    });
    return gradient;
  }
};

TEST_P(OptimizerTest, FollowsADoublePrecisionReference) {
  ThreadPool pool(2);
  std::unique_ptr<HostState> state = Make(pool);
  std::vector<float> start(kCount);
  state->ReadMaster(0, 0, absl::MakeSpan(start));
  std::vector<double> w(start.begin(), start.end()), m(kCount), v(kCount);
  const double factor = 0.37;
  for (int64_t t = 1; t <= 20; ++t) {
    Gradient gradient = DrawGradient(t);
    const OptimizerStep step = StepAt(t);
    ForEachElement(state->layout(0), [&](int64_t i) {
      const bool decays = i >= kMatrixOffset && i < kMatrixOffset + kMatrix;
      const double g = factor * gradient.At(i);
      if (decays) w[i] -= step.learning_rate * step.adamw.weight_decay * w[i];
      m[i] = 0.9 * m[i] + 0.1 * g;
      v[i] = 0.95 * v[i] + 0.05 * g * g;
      const double m_hat = m[i] / (1 - std::pow(0.9, t)), v_hat = v[i] / (1 - std::pow(0.95, t));
      w[i] -= step.learning_rate * m_hat / (std::sqrt(v_hat) + 1e-8);
    });
    UpdateUnit(*state, 0, gradient.slab(), step, factor, pool);
  }
  std::vector<float> result(kCount);
  state->ReadMaster(0, 0, absl::MakeSpan(result));
  ForEachElement(state->layout(0), [&](int64_t i) {
    ASSERT_NEAR(state->first_moment(0)[i], m[i], 1e-6 * 1e-2) << i;
    ASSERT_NEAR(state->second_moment(0)[i], v[i], 2e-6 * v[i]) << i;
    ASSERT_NEAR(result[i], w[i], 2e-7) << i;
  });
}

TEST_P(OptimizerTest, IsBitwiseTheSameForAnyNumberOfThreads) {
  ThreadPool one(1);
  std::unique_ptr<HostState> expected = Make(one);
  for (int64_t t = 1; t <= 3; ++t) {
    UpdateUnit(*expected, 0, DrawGradient(t).slab(), StepAt(t), 0.9, one);
  }
  for (int threads : {2, 3, 4}) {
    ThreadPool pool(threads);
    std::unique_ptr<HostState> state = Make(pool);
    for (int64_t t = 1; t <= 3; ++t) {
      UpdateUnit(*state, 0, DrawGradient(t).slab(), StepAt(t), 0.9, pool);
    }
    EXPECT_EQ(std::memcmp(state->StreamedWeights(0), expected->StreamedWeights(0),
                          state->StreamedBytes(0)),
              0);
    EXPECT_EQ(std::memcmp(state->first_moment(0), expected->first_moment(0), kCount * 4), 0);
    EXPECT_EQ(std::memcmp(state->second_moment(0), expected->second_moment(0), kCount * 4), 0);
    if (state->split()) {
      EXPECT_EQ(std::memcmp(state->low_halves(0), expected->low_halves(0), kCount * 2), 0);
    }
  }
}

TEST_P(OptimizerTest, DecaysMatricesAndLeavesNormsAlone) {
  ThreadPool pool(2);
  std::unique_ptr<HostState> state = Make(pool);
  std::vector<float> before(kCount), after(kCount);
  state->ReadMaster(0, 0, absl::MakeSpan(before));
  Gradient zero(GradientDType(state->layout(0), state->compute_dtype()));
  UpdateUnit(*state, 0, zero.slab(), StepAt(1), 1.0, pool);
  state->ReadMaster(0, 0, absl::MakeSpan(after));
  ForEachElement(state->layout(0), [&](int64_t i) {
    const bool decays = i >= kMatrixOffset && i < kMatrixOffset + kMatrix;
    ASSERT_EQ(after[i], decays ? before[i] * static_cast<float>(1 - 3e-3 * 0.1) : before[i]) << i;
  });
}

TEST_P(OptimizerTest, PaddingStaysZero) {
  ThreadPool pool(2);
  std::unique_ptr<HostState> state = Make(pool);
  UpdateUnit(*state, 0, DrawGradient(1).slab(), StepAt(1), 1.0, pool);
  std::vector<float> after(kCount);
  state->ReadMaster(0, 0, absl::MakeSpan(after));
  for (int64_t i = kNorm; i < kMatrixOffset; ++i) ASSERT_EQ(after[i], 0.0f);
  for (int64_t i = kMatrixOffset + 5920 + kNorm; i < kCount; ++i) ASSERT_EQ(after[i], 0.0f);
}

TEST_P(OptimizerTest, SmallUpdatesAddUpInTheMaster) {
  // Each step changes a weight by far less than one bf16 unit; the fp32 master keeps them.
  ThreadPool pool(1);
  std::unique_ptr<HostState> state = Make(pool);
  state->WriteMaster(0, 0, std::vector<float>{1.0f});
  Gradient gradient(GradientDType(state->layout(0), state->compute_dtype()));
  gradient.Set(0, 1.0f);
  OptimizerStep step = StepAt(1);
  step.learning_rate = 1e-5;
  for (int64_t t = 1; t <= 1000; ++t) {
    step.step = t;
    UpdateUnit(*state, 0, gradient.slab(), step, 1.0, pool);
  }
  std::vector<float> after(1);
  state->ReadMaster(0, 0, absl::MakeSpan(after));
  EXPECT_NEAR(after[0], 1.0 - 1000 * 1e-5, 5e-5);
}

INSTANTIATE_TEST_SUITE_P(Masters, OptimizerTest,
                         testing::Values(std::make_tuple(DType::kBF16, UnitKind::kBlock),
                                         std::make_tuple(DType::kBF16, UnitKind::kEmbedding),
                                         std::make_tuple(DType::kF32, UnitKind::kBlock)),
                         [](const auto& info) {
                           return std::string(NameOf(std::get<0>(info.param))) +
                                  (std::get<1>(info.param) == UnitKind::kEmbedding ? "_embedding"
                                                                                   : "_block");
                         });

}  // namespace
}  // namespace millrace
