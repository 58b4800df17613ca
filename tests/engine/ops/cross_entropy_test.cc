#include <cmath>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/ops/op_test_util.h"

namespace millrace {
namespace {

using testing::HasSubstr;

struct Sizes {
  int64_t tokens, hidden, vocab;
  int64_t tile = 0;
  double z_loss = 0;
  double softcap = 0;
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
      if (s.softcap > 0) logits[v] = s.softcap * std::tanh(logits[v] / s.softcap);
      largest = std::max(largest, logits[v]);
    }
    for (const double l : logits) sum += std::exp(l - largest);
    const double lse = largest + std::log(sum);
    r.loss += lse - logits[targets[i]] + s.z_loss * lse * lse;
    for (int64_t v = 0; v < s.vocab; ++v) {
      const double ratio = s.softcap > 0 ? logits[v] / s.softcap : 0;
      const double d =
          (std::exp(logits[v] - lse) * (1 + 2 * s.z_loss * lse) - (v == targets[i] ? 1 : 0)) *
          (1 - ratio * ratio) * scale;
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

OpsLimits LimitsOf(const Sizes& s) {
  return {.tokens = s.tokens,
          .hidden = s.hidden,
          .vocab = s.vocab,
          .token_chunk = s.tokens,
          .vocab_tile = s.tile};
}

// The op's operands and results.
struct Problem {
  Problem(DType type, const Sizes& s, const Doubles& x_values, const Doubles& weight_values,
          std::vector<int32_t> target_ids)
      : s(s),
        type(type),
        x(type, x_values),
        weight(type, weight_values),
        targets(std::move(target_ids)),
        dx(type, s.tokens * s.hidden),
        dweight(DType::kF32, s.vocab * s.hidden) {}
  Problem(DType type, const Sizes& s)
      : Problem(type, s, RandomDoubles(s.tokens * s.hidden, 1),
                RandomDoubles(s.vocab * s.hidden, 2, 0.5), SomeTargets(s)) {}

  LinearCrossEntropy Op() {
    return {.tokens = s.tokens,
            .hidden = s.hidden,
            .vocab = s.vocab,
            .x = x.data(),
            .weight = weight.data(),
            .targets = targets.data(),
            .gradient_scale = 0.25f,
            .vocab_tile = s.tile,
            .z_loss = s.z_loss,
            .softcap = static_cast<float>(s.softcap),
            .loss_sum = &loss,
            .dx = dx.data(),
            .dweight = {dweight.data(), DType::kF32, false}};
  }
  Reference Want() const { return CrossEntropy(s, x.values(), weight.values(), targets, 0.25); }

  Sizes s;
  DType type;
  Tensor x, weight;
  std::vector<int32_t> targets;
  double loss = 0;
  Tensor dx, dweight;
};

class CrossEntropyTest : public testing::TestWithParam<std::tuple<DType, int, Sizes>> {
 protected:
  DType type() const { return std::get<0>(GetParam()); }
  int threads() const { return std::get<1>(GetParam()); }
  Sizes sizes() const { return std::get<2>(GetParam()); }
};

TEST_P(CrossEntropyTest, LossAndGradientsMatchReference) {
  // A probability is rounded twice.
  const Tolerance tolerance = RoundingOf(type(), type() == DType::kBF16 ? 2 : 64);
  Rig rig(type(), threads(), LimitsOf(sizes()));
  const Reference want = Problem(type(), sizes()).Want();
  std::string first;
  for (int repeat = 0; repeat < 2; ++repeat) {
    Problem p(type(), sizes());
    LinearCrossEntropy op = p.Op();
    p.loss = 3;
    ASSERT_TRUE(rig.Run(op).ok());
    EXPECT_NEAR(p.loss - 3, want.loss, 1e-5 * want.loss);
    ExpectClose(p.dx.values(), want.dx, tolerance, "dx");
    ExpectClose(p.dweight.values(), want.dweight, tolerance, "dweight");

    const Doubles old = RandomDoubles(p.dweight.size(), 3);
    Tensor sum(DType::kF32, old);
    op.dweight = {sum.data(), DType::kF32, true};
    ASSERT_TRUE(rig.Run(op).ok());
    Doubles added = want.dweight;
    for (size_t i = 0; i < added.size(); ++i) added[i] += old[i];
    ExpectClose(sum.values(), added, tolerance, "added dweight");

    const std::string dx = p.dx.bytes();
    op.dx = nullptr;
    op.dweight = {};
    const double loss = p.loss;
    ASSERT_TRUE(rig.Run(op).ok());
    EXPECT_NEAR(p.loss - loss, want.loss, 1e-5 * want.loss);

    op.dx = p.x.data();
    ASSERT_TRUE(rig.Run(op).ok());
    EXPECT_EQ(p.x.bytes(), dx) << "dx in the place of x";

    const std::string bytes = dx + p.dweight.bytes() + sum.bytes();
    if (first.empty()) first = bytes;
    EXPECT_TRUE(bytes == first) << "not repeatable";
  }
}

class TiledCrossEntropyTest : public CrossEntropyTest {};

TEST_P(TiledCrossEntropyTest, TilesThatComeOneByOneGiveTheSameBits) {
  const Sizes s = sizes();
  Rig rig(type(), threads(), LimitsOf(s));
  Problem whole(type(), s), tiled(type(), s);
  ASSERT_TRUE(rig.Run(whole.Op()).ok());

  Tensor max(DType::kF32, s.tokens), sum(DType::kF32, s.tokens), logit(DType::kF32, s.tokens);
  const SoftmaxStatistics statistics = {max.as<float>(), sum.as<float>(), logit.as<float>()};
  Tensor dx(DType::kF32, s.tokens * s.hidden);
  const auto tile = [&](int64_t first, Tensor& weight) {
    return ClassTile{.tokens = s.tokens,
                     .hidden = s.hidden,
                     .vocab = s.vocab,
                     .first = first,
                     .count = weight.size() / s.hidden,
                     .x = tiled.x.data(),
                     .weight = weight.data(),
                     .targets = tiled.targets.data(),
                     .softcap = static_cast<float>(s.softcap)};
  };
  // A copy of its own, so that nothing beside a tile can be read.
  const auto weight_of = [&](int64_t first) {
    const int64_t count = std::min(s.tile, s.vocab - first);
    Tensor weight(type(), count * s.hidden);
    std::memcpy(weight.data(), tiled.weight.as<std::byte>() + first * s.hidden * SizeOf(type()),
                weight.bytes().size());
    return weight;
  };
  for (int64_t first = 0; first < s.vocab; first += s.tile) {
    Tensor weight = weight_of(first);
    ASSERT_TRUE(rig.Run(CrossEntropyStatistics{tile(first, weight), statistics}).ok());
  }
  ASSERT_TRUE(rig.Run(CrossEntropyLoss{.tokens = s.tokens,
                                       .targets = tiled.targets.data(),
                                       .z_loss = s.z_loss,
                                       .statistics = statistics,
                                       .loss_sum = &tiled.loss})
                  .ok());
  std::string dweight;
  for (int64_t first = 0; first < s.vocab; first += s.tile) {
    Tensor weight = weight_of(first);
    Tensor gradient(DType::kF32, weight.size());
    ASSERT_TRUE(rig.Run(CrossEntropyGradient{.tile = tile(first, weight),
                                             .statistics = statistics,
                                             .gradient_scale = 0.25f,
                                             .z_loss = s.z_loss,
                                             .dx = dx.as<float>(),
                                             .dweight = {gradient.data(), DType::kF32, false}})
                    .ok());
    dweight += gradient.bytes();
  }
  ASSERT_TRUE(rig.Run(ConvertGradient{.count = dx.size(),
                                      .source = dx.as<float>(),
                                      .target = tiled.dx.data(),
                                      .target_dtype = type()})
                  .ok());
  EXPECT_EQ(std::memcmp(&tiled.loss, &whole.loss, sizeof(double)), 0);
  EXPECT_TRUE(tiled.dx.bytes() == whole.dx.bytes());
  EXPECT_TRUE(dweight == whole.dweight.bytes());
}

class Bf16CrossEntropyTest : public CrossEntropyTest {};

TEST_P(Bf16CrossEntropyTest, GradientIsWrittenOnceNeverAddedTo) {
  Problem p(type(), sizes());
  Tensor dweight(DType::kBF16, p.dweight.size());
  Rig rig(type(), threads(), LimitsOf(sizes()));
  LinearCrossEntropy op = p.Op();
  op.dweight = {dweight.data(), DType::kBF16, false};
  ASSERT_TRUE(rig.Run(op).ok());
  ExpectClose(dweight.values(), p.Want().dweight, RoundingOf(type(), 2), "dweight");
  op.dweight.accumulate = true;
  EXPECT_EQ(rig.Run(op).code(), absl::StatusCode::kInvalidArgument);
}

// bf16 where ops compute in it.
std::vector<DType> Bf16IfComputed() {
  std::vector<DType> types = ComputeTypes();
  std::erase(types, DType::kF32);
  return types;
}

const Sizes kWholeSizes[] = {{1, 8, 257},
                             {130, 64, 1600, 0, 1e-3},
                             {300, 32, 520},
                             {70, 48, 600, 0, 0, 2},
                             {17, 64, 1000, 0, 1e-2, 30}};
const Sizes kTiledSizes[] = {
    {3, 64, 1000, 333},           {17, 48, 257, 100, 1e-2},    {17, 48, 57, 5},
    {70, 40, 3601, 1600},         {1100, 32, 520, 4096, 1e-4}, {17, 48, 257, 100, 0, 1.5},
    {70, 40, 1000, 333, 1e-2, 30}};
const auto kThreads = testing::Values(1, 2, 3);

INSTANTIATE_TEST_SUITE_P(Whole, CrossEntropyTest,
                         testing::Combine(testing::ValuesIn(ComputeTypes()), kThreads,
                                          testing::ValuesIn(kWholeSizes)));
INSTANTIATE_TEST_SUITE_P(Tiled, CrossEntropyTest,
                         testing::Combine(testing::ValuesIn(ComputeTypes()), kThreads,
                                          testing::ValuesIn(kTiledSizes)));
INSTANTIATE_TEST_SUITE_P(Sizes, TiledCrossEntropyTest,
                         testing::Combine(testing::ValuesIn(ComputeTypes()), kThreads,
                                          testing::ValuesIn(kTiledSizes)));
INSTANTIATE_TEST_SUITE_P(Whole, Bf16CrossEntropyTest,
                         testing::Combine(testing::ValuesIn(Bf16IfComputed()), kThreads,
                                          testing::ValuesIn(kWholeSizes)));
INSTANTIATE_TEST_SUITE_P(Tiled, Bf16CrossEntropyTest,
                         testing::Combine(testing::ValuesIn(Bf16IfComputed()), kThreads,
                                          testing::ValuesIn(kTiledSizes)));
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Bf16CrossEntropyTest);

TEST(CrossEntropyReferenceTest, GradientIsThatOfFiniteDifferences) {
  for (const auto& [z_loss, softcap] :
       {std::pair(0.0, 0.0), std::pair(0.1, 0.0), std::pair(0.0, 2.0), std::pair(0.1, 0.5)}) {
    const Sizes s{3, 4, 7, 0, z_loss, softcap};
    const Doubles x = RandomDoubles(12, 1), weight = RandomDoubles(28, 2);
    const std::vector<int32_t> targets = {6, -1, 2};
    const Reference r = CrossEntropy(s, x, weight, targets, 1);
    const auto of_x = [&](const Doubles& v) { return CrossEntropy(s, v, weight, targets, 1).loss; };
    const auto of_w = [&](const Doubles& v) { return CrossEntropy(s, x, v, targets, 1).loss; };
    ExpectClose(r.dx, FiniteDifferences(x, of_x), {1e-6, 1e-8}, "dx");
    ExpectClose(r.dweight, FiniteDifferences(weight, of_w), {1e-6, 1e-8}, "dweight");
  }
}

// Tests of what logits and targets may be, in one pass and in tiles.
class CrossEntropyExtremesTest : public testing::TestWithParam<std::tuple<DType, int64_t>> {
 protected:
  DType type() const { return std::get<0>(GetParam()); }
  int64_t tile() const { return std::get<1>(GetParam()); }

  void ExpectFinite(Problem& p) {
    EXPECT_TRUE(std::isfinite(p.loss));
    for (const double g : p.dx.values()) ASSERT_TRUE(std::isfinite(g));
    for (const double g : p.dweight.values()) ASSERT_TRUE(std::isfinite(g));
  }
};

// Logits that f32 and bf16 operands hold exactly: `base` and a few more or less.
TEST_P(CrossEntropyExtremesTest, LargeLogitsAreAsExactAsSmallOnes) {
  for (const double base : {1e4, -1e4, 3e5}) {
    const Sizes s{6, 2, 600, tile()};
    const double step = std::exp2(std::floor(std::log2(std::abs(base))) - 6);
    Doubles x, weight;
    for (int64_t i = 0; i < s.tokens; ++i) x.insert(x.end(), {step, 1});
    const Doubles small = RandomDoubles(s.vocab, 7, 3);
    for (int64_t v = 0; v < s.vocab; ++v) {
      weight.insert(weight.end(), {std::round(base / step), std::round(small[v] * 8) / 8});
    }
    Problem p(type(), s, x, weight, {5, 10, 599, 0, -1, 7});
    Rig rig(type(), 2, LimitsOf(s));
    ASSERT_TRUE(rig.Run(p.Op()).ok());
    const Reference want = p.Want();
    EXPECT_NEAR(p.loss, want.loss, 1e-5 * want.loss) << base;
    // The tokens' gradient in the direction of `base` is a difference of large numbers.
    const Tolerance tolerance = RoundingOf(type(), type() == DType::kBF16 ? 2 : 64);
    ExpectClose(p.dweight.values(), want.dweight, tolerance, "dweight");
    ExpectFinite(p);
  }
}

TEST_P(CrossEntropyExtremesTest, HugeLogitsStayFinite) {
  for (const double magnitude : {100.0, 1e15}) {
    const Sizes s{6, 16, 600, tile()};
    Problem p(type(), s, RandomDoubles(s.tokens * s.hidden, 1, magnitude),
              RandomDoubles(s.vocab * s.hidden, 2, magnitude), {5, 10, 599, 0, -1, 7});
    Rig rig(type(), 2, LimitsOf(s));
    ASSERT_TRUE(rig.Run(p.Op()).ok());
    EXPECT_GT(p.loss, 1e3);
    ExpectFinite(p);
  }
}

TEST_P(CrossEntropyExtremesTest, LogitsFarBeyondTheSoftCapHaveNoGradient) {
  const Sizes s{6, 16, 600, tile(), 0, 30};
  Problem p(type(), s, RandomDoubles(s.tokens * s.hidden, 1, 1e4, 2e4),
            RandomDoubles(s.vocab * s.hidden, 2, 1e4, 2e4), {5, 10, 599, 0, -1, 7});
  Rig rig(type(), 2, LimitsOf(s));
  ASSERT_TRUE(rig.Run(p.Op()).ok());
  EXPECT_NEAR(p.loss, 5 * std::log(600.0), 1e-3) << "all logits are the cap";
  for (const double g : p.dweight.values()) ASSERT_EQ(g, 0);
}

TEST_P(CrossEntropyExtremesTest, IgnoredTokensHaveNoLossAndNoGradient) {
  const Sizes s{5, 16, 600, tile(), 1e-2};
  Problem p(type(), s, RandomDoubles(s.tokens * s.hidden, 1), RandomDoubles(s.vocab * s.hidden, 2),
            {-1, -1, -100, -1, -1});
  Rig rig(type(), 2, LimitsOf(s));
  ASSERT_TRUE(rig.Run(p.Op()).ok());
  EXPECT_EQ(p.loss, 0);
  EXPECT_EQ(p.dx.values(), Doubles(p.dx.size()));
  EXPECT_EQ(p.dweight.values(), Doubles(p.dweight.size()));
}

TEST_P(CrossEntropyExtremesTest, NanLogitsMakeTheLossNan) {
  const Sizes s{2, 16, 600, tile()};
  Doubles x = RandomDoubles(s.tokens * s.hidden, 1);
  x[3] = std::nan("");
  Problem p(type(), s, x, RandomDoubles(s.vocab * s.hidden, 2), {1, 2});
  Rig rig(type(), 1, LimitsOf(s));
  ASSERT_TRUE(rig.Run(p.Op()).ok());
  EXPECT_TRUE(std::isnan(p.loss));
}

INSTANTIATE_TEST_SUITE_P(Tiles, CrossEntropyExtremesTest,
                         testing::Combine(testing::ValuesIn(ComputeTypes()),
                                          testing::Values(int64_t{0}, int64_t{170})));

TEST(CrossEntropyErrorsTest, TargetBeyondTheVocabularyIsRefused) {
  const Sizes s{1, 2, 3, 2};
  Problem p(DType::kF32, s, Doubles(2), Doubles(6), {3});
  Rig rig(DType::kF32, 1, LimitsOf(s));
  const absl::Status status = rig.Run(p.Op());
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("target 3 is not under"));
  EXPECT_EQ(rig.Run(ConvertGradient{}).code(), absl::StatusCode::kInvalidArgument)
      << "a stream's error must skip what follows";
}

TEST(CrossEntropyErrorsTest, TileBeyondTheVocabularyIsRefused) {
  const Sizes s{1, 2, 3, 2};
  Problem p(DType::kF32, s, Doubles(2), Doubles(6), {0});
  Rig rig(DType::kF32, 1, LimitsOf(s));
  float numbers[3];
  const absl::Status status = rig.Run(CrossEntropyStatistics{
      {1, 2, 3, 2, 2, p.x.data(), p.weight.data(), p.targets.data()}, {numbers, numbers, numbers}});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
}

TEST(CrossEntropyErrorsTest, WorkspaceThatIsTooSmallIsRefused) {
  const Sizes s{4, 2, 300};
  Problem p(DType::kF32, s);
  Rig rig(DType::kF32, 1, LimitsOf(s));
  rig.ops->SetWorkspace(nullptr, 0);
  EXPECT_EQ(rig.Run(p.Op()).code(), absl::StatusCode::kResourceExhausted);
}

class SoftCapTest : public testing::TestWithParam<int> {};

TEST_P(SoftCapTest, IsTheScaledTanhOfEachLogit) {
  for (const int64_t count : {1, 15, 16, 4097, 20000}) {
    Doubles values = RandomDoubles(count, 1, 100);
    values[0] = -1e30;
    values[count / 2] = 1e-20;
    Tensor x(DType::kF32, values);
    Doubles want = x.values();
    for (double& v : want) v = 30 * std::tanh(v / 30);
    Rig rig(DType::kF32, GetParam(), {});
    ASSERT_TRUE(rig.Run(SoftCap{.count = count, .cap = 30, .x = x.as<float>()}).ok());
    ExpectClose(x.values(), want, {1e-6, 0}, "capped");
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, SoftCapTest, kThreads);

}  // namespace
}  // namespace millrace
