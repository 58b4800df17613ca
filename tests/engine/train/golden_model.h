// A model of tests/golden: its weights, its steps, and what PyTorch made of them.
#ifndef MILLRACE_TESTS_ENGINE_TRAIN_GOLDEN_MODEL_H_
#define MILLRACE_TESTS_ENGINE_TRAIN_GOLDEN_MODEL_H_

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/file.h"
#include "engine/data/batch.h"
#include "engine/model/model_directory.h"
#include "engine/model/safetensors.h"
#include "engine/optim/optimizer.h"
#include "nlohmann/json.hpp"

namespace millrace {

struct GoldenStep {
  MicroBatch batch;
  double loss = 0;
  double gradient_norm = 0;
};

class GoldenModel {
 public:
  explicit GoldenModel(const std::string& name)
      : folder_("tests/golden/" + name),
        spec_(*ReadModelDirectoryConfig(folder_)),
        reader_(*SafetensorsReader::Open(folder_ + "/golden.safetensors")) {
    const auto json = nlohmann::json::parse(*ReadFile(folder_ + "/steps.json"));
    const auto& optimizer = json.at("optimizer");
    optimizer_.learning_rate = optimizer.at("learning_rate");
    optimizer_.params = {.beta1 = optimizer.at("betas")[0],
                         .beta2 = optimizer.at("betas")[1],
                         .epsilon = optimizer.at("epsilon"),
                         .weight_decay = optimizer.at("weight_decay")};
    optimizer_.clip_norm = optimizer.at("clip_norm");
    for (const auto& step : json.at("steps")) {
      GoldenStep& added = steps_.emplace_back();
      step.at("inputs").get_to(added.batch.inputs);
      step.at("targets").get_to(added.batch.targets);
      step.at("positions").get_to(added.batch.positions);
      step.at("boundaries").get_to(added.batch.boundaries);
      for (int32_t target : added.batch.targets) added.batch.target_count += target >= 0;
      added.loss = step.at("loss");
      added.gradient_norm = step.at("gradient_norm");
    }
  }

  const std::string& folder() const { return folder_; }
  const ModelSpec& spec() const { return spec_; }
  const std::vector<GoldenStep>& steps() const { return steps_; }
  const OptimizerStep& optimizer() const { return optimizer_; }

  std::vector<float> Values(const std::string& name) const {
    const SafetensorsEntry& entry = reader_.tensors().at(name);
    std::vector<float> values(static_cast<size_t>(entry.count()));
    EXPECT_TRUE(reader_.Read(entry, 0, absl::MakeSpan(values)).ok()) << name;
    return values;
  }

  // The relative L2 difference, ‖actual − expected‖ / ‖expected‖, of each tensor `prefix`NAME of
  // the file to what `read(unit, offset)` gives for its elements, as (NAME, difference).
  std::vector<std::pair<std::string, double>> Differences(
      const std::string& prefix, const std::vector<SlabLayout>& layouts,
      const std::function<float(int unit, int64_t offset)>& read) const {
    std::vector<std::pair<std::string, double>> differences;
    for (size_t unit = 0; unit < layouts.size(); ++unit) {
      for (const TensorLayout& tensor : layouts[unit].tensors) {
        for (const TensorPart& part : tensor.parts) {
          const std::vector<float> expected = Values(prefix + part.name);
          double difference = 0, norm = 0;
          for (int64_t r = 0; r < part.rows; ++r) {
            for (int64_t c = 0; c < tensor.columns; ++c) {
              const int64_t at = part.transposed ? c * part.rows + r : r * tensor.columns + c;
              const double want = expected[static_cast<size_t>(at)];
              const double have = read(static_cast<int>(unit),
                                       tensor.offset + (part.first_row + r) * tensor.columns + c);
              difference += (have - want) * (have - want);
              norm += want * want;
            }
          }
          differences.push_back({part.name, std::sqrt(difference / norm)});
        }
      }
    }
    return differences;
  }

 private:
  std::string folder_;
  ModelSpec spec_;
  SafetensorsReader reader_;
  OptimizerStep optimizer_;
  std::vector<GoldenStep> steps_;
};

}  // namespace millrace

#endif  // MILLRACE_TESTS_ENGINE_TRAIN_GOLDEN_MODEL_H_
