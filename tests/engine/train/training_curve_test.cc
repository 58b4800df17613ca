// A run of 200 steps in bf16 beside PyTorch's in float32, from the same weights on the same tokens:
// the curve in tests/golden, or those in the folders of $MILLRACE_CURVES (make_curves.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "engine/base/file.h"
#include "nlohmann/json.hpp"
#include "tests/engine/train/golden_engine.h"
#include "tests/golden/golden_names.h"

namespace millrace {
namespace {

std::vector<std::string> CurveFolders() {
  const char* other = std::getenv("MILLRACE_CURVES");
  std::vector<std::string> folders;
  for (const auto& entry : std::filesystem::directory_iterator(other ? other : kGoldenRoot)) {
    if (std::filesystem::exists(entry.path() / "curve.json")) folders.push_back(entry.path());
  }
  return folders;
}

// The run of `text` that step `index` takes, as sequences of `length` tokens and one more, to
// predict.
MicroBatch BatchOf(const std::vector<int32_t>& text, size_t index, int32_t sequences,
                   int32_t length) {
  MicroBatch batch;
  batch.boundaries = {0};
  size_t at = index * static_cast<size_t>(sequences * (length + 1));
  for (int32_t sequence = 0; sequence < sequences; ++sequence, ++at) {
    for (int32_t position = 0; position < length; ++position, ++at) {
      batch.inputs.push_back(text[at % text.size()]);
      batch.targets.push_back(text[(at + 1) % text.size()]);
      batch.positions.push_back(position);
    }
    batch.boundaries.push_back(batch.boundaries.back() + length);
  }
  batch.target_count = batch.tokens();
  return batch;
}

class TrainingCurveTest : public testing::TestWithParam<std::string> {};

TEST_P(TrainingCurveTest, LossInBf16IsWithinAHundredthOfFloat32) {
  const auto curve = nlohmann::json::parse(*ReadFile(GetParam() + "/curve.json"));
  const auto text = curve.at("text").get<std::vector<int32_t>>();
  const auto losses = curve.at("losses").get<std::vector<double>>();
  const int32_t sequences = curve.at("sequences"), length = curve.at("length");
  const auto& given = curve.at("optimizer");
  OptimizerStep optimizer;
  optimizer.learning_rate = given.at("learning_rate");
  optimizer.params = {.beta1 = given.at("betas")[0],
                      .beta2 = given.at("betas")[1],
                      .epsilon = given.at("epsilon"),
                      .weight_decay = given.at("weight_decay")};
  optimizer.clip_norm = given.at("clip_norm");

  GoldenEngine engine;
  ASSERT_NO_FATAL_FAILURE(
      engine.Make(GetParam(), Recipe::kFull, DType::kBF16, int64_t{sequences} * length));
  ASSERT_EQ(losses.size(), 200);
  double worst = 0;
  for (size_t i = 0; i < losses.size(); ++i) {
    const double loss = engine.Step(i, BatchOf(text, i, sequences, length), optimizer).loss();
    const double off = std::abs(loss / losses[i] - 1);
    EXPECT_LT(off, 0.01) << "step " << i + 1 << ": " << loss << " and not " << losses[i];
    worst = std::max(worst, off);
  }
  EXPECT_LT(losses.back(), losses.front() - 0.5) << "nothing was learnt";
  RecordProperty("worst_loss", absl::StrFormat("%.1e", worst));
  std::cout << GetParam() << absl::StrFormat(": within %.2f%%\n", 100 * worst);
}

INSTANTIATE_TEST_SUITE_P(Curves, TrainingCurveTest, testing::ValuesIn(CurveFolders()),
                         [](const auto& info) {
                           return std::filesystem::path(info.param).filename().string();
                         });

}  // namespace
}  // namespace millrace
