#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "tests/engine/ops/op_test_util.h"

namespace millrace {
namespace {

struct Sizes {
  int64_t tokens, hidden, vocab, chunk;
};

struct Reference {
  double loss = 0;
  Doubles dx, dweight;
};

Reference CrossEntropy(const Sizes& s, const Doubles& x, const Doubles& weight,
                       const std::vector<int32_t>& targets, double scale) {
  Reference r{0, Doubles(s.tokens * s.hidden), Doubles(s.vocab * s.hidden)};
  for (int64_t i = 0; i < s.tokens; ++i) {
    if (targets[i] < 0) continue;
    Doubles logits(s.vocab);
    double largest = -HUGE_VAL, sum = 0;
    for (int64_t v = 0; v < s.vocab; ++v) {
      for (int64_t h = 0; h < s.hidden; ++h)
        logits[v] += x[i * s.hidden + h] * weight[v * s.hidden + h];
      largest = std::max(largest, logits[v]);
    }
    for (const double l : logits) sum += std::exp(l - largest);
    const double log_sum_exp = largest + std::log(sum);
    r.loss += log_sum_exp - logits[targets[i]];
    for (int64_t v = 0; v < s.vocab; ++v) {
      const double d = (std::exp(logits[v] - log_sum_exp) - (v == targets[i] ? 1 : 0)) * scale;
      for (int64_t h = 0; h < s.hidden; ++h) {
        r.dx[i * s.hidden + h] += d * weight[v * s.hidden + h];
        r.dweight[v * s.hidden + h] += d * x[i * s.hidden + h];
      }
    }
  }
  return r;
}

// Some ignored, the first and the last word among them.
std::vector<int32_t> SomeTargets(const Sizes& s) {
  std::vector<int32_t> targets(s.tokens);
  const Doubles random = RandomDoubles(s.tokens, 9);
  for (int64_t i = 0; i < s.tokens; ++i) {
    targets[i] = i % 5 == 3 ? -1 : static_cast<int32_t>((random[i] + 1) / 2 * s.vocab);
  }
  targets[0] = static_cast<int32_t>(s.vocab - 1);
  if (s.tokens > 1) targets[1] = 0;
  return targets;
}

class CrossEntropyTest : public testing::TestWithParam<std::tuple<DType, int, Sizes>> {
 protected:
  DType type() const { return std::get<0>(GetParam()); }
  int threads() const { return std::get<1>(GetParam()); }
  Sizes sizes() const { return std::get<2>(GetParam()); }
  OpsLimits limits() const {
    return {.tokens = sizes().tokens,
            .hidden = sizes().hidden,
            .vocab = sizes().vocab,
            .token_chunk = sizes().chunk};
  }
};

TEST_P(CrossEntropyTest, LossAndGradientsMatchReference) {
  const Sizes s = sizes();
  const Tensor x(type(), RandomDoubles(s.tokens * s.hidden, 1));
  const Tensor weight(type(), RandomDoubles(s.vocab * s.hidden, 2, 0.5));
  const std::vector<int32_t> targets = SomeTargets(s);
  const Reference want = CrossEntropy(s, x.values(), weight.values(), targets, 0.25);
  const Doubles old = RandomDoubles(s.vocab * s.hidden, 3);
  // A probability is rounded twice.
  const Tolerance tolerance = RoundingOf(type(), type() == DType::kBF16 ? 2 : 64);

  Rig rig(type(), threads(), limits());
  std::string first;
  for (int repeat = 0; repeat < 2; ++repeat) {
    double loss = 3, loss_alone = 0;
    Tensor dx(type(), s.tokens * s.hidden, 64 * repeat), dweight(DType::kF32, s.vocab * s.hidden);
    Tensor sum(DType::kF32, old);
    LinearCrossEntropy op{.tokens = s.tokens,
                          .hidden = s.hidden,
                          .vocab = s.vocab,
                          .x = x.data(),
                          .weight = weight.data(),
                          .targets = targets.data(),
                          .gradient_scale = 0.25f,
                          .token_chunk = s.chunk,
                          .loss_sum = &loss,
                          .dx = dx.data(),
                          .dweight = {dweight.data(), DType::kF32, false}};
    ASSERT_TRUE(rig.Run(op).ok());
    EXPECT_NEAR(loss - 3, want.loss, 1e-5 * want.loss);
    ExpectClose(dx.values(), want.dx, tolerance, "dx");
    ExpectClose(dweight.values(), want.dweight, tolerance, "dweight");
    op.dweight = {sum.data(), DType::kF32, true};
    ASSERT_TRUE(rig.Run(op).ok());
    Doubles added = want.dweight;
    for (size_t i = 0; i < added.size(); ++i) added[i] += old[i];
    ExpectClose(sum.values(), added, tolerance, "added dweight");

    op.dx = nullptr;
    op.dweight = {};
    op.loss_sum = &loss_alone;
    ASSERT_TRUE(rig.Run(op).ok());
    EXPECT_NEAR(loss_alone, want.loss, 1e-5 * want.loss);
    const std::string bytes = dx.bytes() + dweight.bytes() + sum.bytes();
    if (first.empty()) first = bytes;
    EXPECT_TRUE(bytes == first) << "not repeatable";
  }
}

TEST_P(CrossEntropyTest, Bf16GradientIsWrittenOnceOrRefused) {
  if (type() != DType::kBF16) GTEST_SKIP() << "of bf16 alone";
  const Sizes s = sizes();
  const Tensor x(type(), RandomDoubles(s.tokens * s.hidden, 1));
  const Tensor weight(type(), RandomDoubles(s.vocab * s.hidden, 2, 0.5));
  const std::vector<int32_t> targets = SomeTargets(s);
  Tensor dx(type(), s.tokens * s.hidden), dweight(DType::kBF16, s.vocab * s.hidden);
  double loss = 0;
  Rig rig(type(), threads(), limits());
  const absl::Status status =
      rig.Run(LinearCrossEntropy{.tokens = s.tokens,
                                 .hidden = s.hidden,
                                 .vocab = s.vocab,
                                 .x = x.data(),
                                 .weight = weight.data(),
                                 .targets = targets.data(),
                                 .gradient_scale = 0.25f,
                                 .token_chunk = s.chunk,
                                 .loss_sum = &loss,
                                 .dx = dx.data(),
                                 .dweight = {dweight.data(), DType::kBF16, false}});
  if (s.tokens > s.chunk) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  } else {
    ASSERT_TRUE(status.ok()) << status;
    ExpectClose(dweight.values(),
                CrossEntropy(s, x.values(), weight.values(), targets, 0.25).dweight,
                RoundingOf(type(), 2), "dweight");
  }
}

INSTANTIATE_TEST_SUITE_P(
    Sizes, CrossEntropyTest,
    testing::Combine(testing::ValuesIn(ComputeTypes()), testing::Values(1, 2, 3),
                     testing::Values(Sizes{1, 8, 257, 4}, Sizes{3, 64, 1000, 3},
                                     Sizes{17, 48, 257, 5}, Sizes{130, 64, 1600, 100},
                                     Sizes{300, 32, 520, 512})));

TEST(CrossEntropyReferenceTest, GradientIsThatOfFiniteDifferences) {
  const Sizes s{3, 4, 7, 3};
  const Doubles x = RandomDoubles(12, 1), weight = RandomDoubles(28, 2);
  const std::vector<int32_t> targets = {6, -1, 2};
  const Reference r = CrossEntropy(s, x, weight, targets, 1);
  ExpectClose(r.dx,
              FiniteDifferences(
                  x, [&](const Doubles& v) { return CrossEntropy(s, v, weight, targets, 1).loss; }),
              {1e-6, 1e-8}, "dx");
  ExpectClose(r.dweight,
              FiniteDifferences(
                  weight, [&](const Doubles& v) { return CrossEntropy(s, x, v, targets, 1).loss; }),
              {1e-6, 1e-8}, "dweight");
}

// One hidden element, so that logits are weight · x.
struct Extreme {
  double loss = 0;
  Doubles dx, dweight;
};
Extreme RunExtreme(DType type, const std::vector<int32_t>& targets, double magnitude) {
  const Sizes s{static_cast<int64_t>(targets.size()), 16, 600, 4};
  const Tensor x(type, RandomDoubles(s.tokens * s.hidden, 1, magnitude));
  const Tensor weight(type, RandomDoubles(s.vocab * s.hidden, 2, magnitude));
  Tensor dx(type, s.tokens * s.hidden), dweight(DType::kF32, s.vocab * s.hidden);
  Rig rig(type, 2, {.tokens = s.tokens, .hidden = s.hidden, .vocab = s.vocab, .token_chunk = 4});
  Extreme result;
  EXPECT_TRUE(rig.Run(LinearCrossEntropy{.tokens = s.tokens,
                                         .hidden = s.hidden,
                                         .vocab = s.vocab,
                                         .x = x.data(),
                                         .weight = weight.data(),
                                         .targets = targets.data(),
                                         .gradient_scale = 1,
                                         .token_chunk = s.chunk,
                                         .loss_sum = &result.loss,
                                         .dx = dx.data(),
                                         .dweight = {dweight.data(), DType::kF32, false}})
                  .ok());
  result.dx = dx.values();
  result.dweight = dweight.values();
  return result;
}

TEST(CrossEntropyExtremesTest, LargeLogitsStayFinite) {
  for (const DType type : ComputeTypes()) {
    const Extreme r = RunExtreme(type, {5, 10, 599, 0, -1, 7}, 100);
    EXPECT_TRUE(std::isfinite(r.loss));
    EXPECT_GT(r.loss, 1e3);
    for (const double g : r.dx) ASSERT_TRUE(std::isfinite(g));
    for (const double g : r.dweight) ASSERT_TRUE(std::isfinite(g));
  }
}

TEST(CrossEntropyExtremesTest, IgnoredTokensHaveNoLossAndNoGradient) {
  for (const DType type : ComputeTypes()) {
    const Extreme r = RunExtreme(type, {-1, -1, -100, -1, -1}, 1);
    EXPECT_EQ(r.loss, 0);
    EXPECT_EQ(r.dx, Doubles(r.dx.size()));
    EXPECT_EQ(r.dweight, Doubles(r.dweight.size()));
  }
}

TEST(CrossEntropyErrorsTest, TargetBeyondTheVocabularyIsRefused) {
  Rig rig(DType::kF32, 1, {.tokens = 1, .hidden = 2, .vocab = 3, .token_chunk = 1});
  Tensor x(DType::kF32, Doubles(6));
  const int32_t target = 3;
  double loss = 0;
  const absl::Status status = rig.Run(LinearCrossEntropy{.tokens = 1,
                                                         .hidden = 2,
                                                         .vocab = 3,
                                                         .x = x.data(),
                                                         .weight = x.data(),
                                                         .targets = &target,
                                                         .gradient_scale = 1,
                                                         .token_chunk = 1,
                                                         .loss_sum = &loss});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(rig.Run(ConvertGradient{}).code(), absl::StatusCode::kInvalidArgument)
      << "a stream's error must skip what follows";
}

}  // namespace
}  // namespace millrace
