// The whole engine, from token ids to updated weights, against PyTorch in float32, for every family
// and every setting of tests/golden. The worst deviations are properties in the test's XML.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "tests/engine/train/golden_engine.h"
#include "tests/engine/train/golden_model.h"

namespace millrace {
namespace {

class ParityTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_TRUE(golden_.spec().ok()) << golden_.spec().status(); }

  void Make(Recipe recipe, DType compute) {
    engine_.Make(golden_.folder(), recipe, compute, golden_.steps()[0].batch.tokens());
  }

  StepResult Step(size_t index) {
    return engine_.Step(index, golden_.steps()[index].batch, golden_.optimizer());
  }

  // The largest of what is off, relative, over all steps.
  struct Worst {
    double loss = 0, gradient_norm = 0;
  };
  Worst TrainAllSteps() {
    Worst worst;
    for (size_t i = 0; i < golden_.steps().size(); ++i) {
      const StepResult result = Step(i);
      const GoldenStep& expected = golden_.steps()[i];
      worst.loss = std::max(worst.loss, std::abs(result.loss() / expected.loss - 1));
      worst.gradient_norm = std::max(worst.gradient_norm,
                                     std::abs(result.gradient_norm / expected.gradient_norm - 1));
    }
    EXPECT_TRUE(engine_.runner().Flush().ok());
    return worst;
  }

  static void ExpectWithin(double limit,
                           const std::vector<std::pair<std::string, double>>& distances) {
    double worst = 0;
    for (const auto& [name, distance] : distances) {
      EXPECT_LT(distance, limit) << name;
      worst = std::max(worst, distance);
    }
    Record("tensor", worst);
  }

  static void Record(const std::string& what, double worst) {
    RecordProperty("worst_" + what, absl::StrFormat("%.1e", worst));
  }

  const GoldenModel golden_{GetParam()};
  GoldenEngine engine_;
};

TEST_P(ParityTest, LossNormAndGradientsOfTheFirstStep) {
  ASSERT_NO_FATAL_FAILURE(Make(Recipe::kFp32, DType::kF32));
  const StepResult result = Step(0);
  const GoldenStep& expected = golden_.steps()[0];
  EXPECT_EQ(result.targets, expected.batch.target_count);
  EXPECT_NEAR(result.loss(), expected.loss, 1e-5 * expected.loss);
  EXPECT_NEAR(result.gradient_norm, expected.gradient_norm, 1e-5 * expected.gradient_norm);
  Record("loss", std::abs(result.loss() / expected.loss - 1));
  ExpectWithin(1e-4,
               golden_.Distances("gradient.", engine_.state().layouts(),
                                 [this](int u, int64_t i) { return engine_.GradientAt(u, i); }));
}

TEST_P(ParityTest, TwentyStepsOfAdamWWithClipping) {
  ASSERT_NO_FATAL_FAILURE(Make(Recipe::kFp32, DType::kF32));
  ASSERT_EQ(golden_.steps().size(), 20);
  const Worst worst = TrainAllSteps();
  EXPECT_LT(worst.loss, 1e-5);
  EXPECT_LT(worst.gradient_norm, 1e-4);
  Record("loss", worst.loss);
  ExpectWithin(1e-4,
               golden_.Distances("after.", engine_.state().layouts(),
                                 [this](int u, int64_t i) { return engine_.WeightAt(u, i); }));
}

TEST_P(ParityTest, LogitsAfterEveryToken) {
  ASSERT_NO_FATAL_FAILURE(Make(Recipe::kFp32, DType::kF32));
  const std::vector<float> expected = golden_.Values("logits");
  const MicroBatch& batch = golden_.steps()[0].batch;
  const auto vocab = static_cast<size_t>(golden_.spec()->vocab_size);
  std::vector<float> logits(vocab);
  double worst = 0;
  for (size_t document = 1; document < batch.boundaries.size(); ++document) {
    const int32_t begin = batch.boundaries[document - 1], end = batch.boundaries[document];
    // Where rotary embeddings depend on the longest position, a prefix is another run.
    for (int32_t last = golden_.whole() ? end : begin + 1; last <= end; ++last) {
      const auto tokens =
          absl::MakeConstSpan(batch.inputs)
              .subspan(static_cast<size_t>(begin), static_cast<size_t>(last - begin));
      const absl::Status status = engine_.runner().Logits(tokens, absl::MakeSpan(logits));
      ASSERT_TRUE(status.ok()) << status;
      for (size_t v = 0; v < vocab; ++v) {
        const double off = logits[v] - expected[static_cast<size_t>(last - 1) * vocab + v];
        worst = std::max(worst, std::abs(off));
        ASSERT_LT(std::abs(off), 1e-4) << "after token " << last - 1 << ", class " << v;
      }
    }
  }
  Record("logit", worst);
}

TEST_P(ParityTest, WhatFollowsGreedilyIsTheSame) {
  const auto [prompt, expected] = golden_.generation();
  const auto longest = static_cast<int64_t>(prompt.size() + expected.size());
  ASSERT_NO_FATAL_FAILURE(engine_.Make(golden_.folder(), Recipe::kFp32, DType::kF32, longest));
  std::vector<int32_t> tokens = prompt;
  std::vector<float> logits(static_cast<size_t>(golden_.spec()->vocab_size));
  for (int32_t token : expected) {
    ASSERT_TRUE(engine_.runner().Logits(tokens, absl::MakeSpan(logits)).ok());
    const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
    ASSERT_EQ(best, token) << "after " << tokens.size() << " tokens";
    tokens.push_back(token);
  }
}

TEST_P(ParityTest, EvaluationGivesTheLossAndChangesNothing) {
  ASSERT_NO_FATAL_FAILURE(Make(Recipe::kFp32, DType::kF32));
  const GoldenStep& expected = golden_.steps()[0];
  for (int i = 0; i < 2; ++i) {
    const auto sum = engine_.runner().EvaluateLossSum(GoldenEngine::View(expected.batch));
    ASSERT_TRUE(sum.ok()) << sum.status();
    EXPECT_NEAR(*sum / static_cast<double>(expected.batch.target_count), expected.loss,
                1e-5 * expected.loss);
  }
}

TEST_P(ParityTest, FullRecipeInF32IsFp32) {
  ASSERT_NO_FATAL_FAILURE(Make(Recipe::kFull, DType::kF32));
  EXPECT_LT(TrainAllSteps().loss, 1e-5);
}

TEST_P(ParityTest, Bf16FollowsAtItsPrecision) {
  ASSERT_NO_FATAL_FAILURE(Make(Recipe::kFull, DType::kBF16));
  const Worst worst = TrainAllSteps();
  EXPECT_LT(worst.loss, 1e-2);
  Record("loss", worst.loss);
}

INSTANTIATE_TEST_SUITE_P(Models, ParityTest, testing::ValuesIn(GoldenNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace millrace
