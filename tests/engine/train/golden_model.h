// A model of tests/golden: its weights, its steps, and what PyTorch made of them.
#ifndef MILLRACE_TESTS_ENGINE_TRAIN_GOLDEN_MODEL_H_
#define MILLRACE_TESTS_ENGINE_TRAIN_GOLDEN_MODEL_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/file.h"
#include "engine/data/batch.h"
#include "engine/model/file_tensor.h"
#include "engine/model/model_directory.h"
#include "engine/model/safetensors.h"
#include "engine/optim/optimizer.h"
#include "nlohmann/json.hpp"
#include "tests/golden/golden_names.h"

namespace millrace {

// ‖actual − expected‖ / ‖expected‖.
inline double RelativeDistance(const std::vector<float>& actual,
                               const std::vector<float>& expected) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double off = static_cast<double>(actual[i]) - expected[i];
    difference += off * off;
    norm += static_cast<double>(expected[i]) * expected[i];
  }
  return std::sqrt(difference / norm);
}

struct GoldenStep {
  MicroBatch batch;
  double loss = 0;
  double gradient_norm = 0;
};

class GoldenModel {
 public:
  explicit GoldenModel(const std::string& name)
      : folder_(kGoldenRoot + name),
        spec_(ReadModelDirectoryConfig(folder_)),
        reader_(SafetensorsReader::Open(folder_ + "/golden.safetensors")) {
    const auto json = nlohmann::json::parse(*ReadFile(folder_ + "/steps.json"));
    const auto& optimizer = json.at("optimizer");
    optimizer_.learning_rate = optimizer.at("learning_rate");
    optimizer_.params = {.beta1 = optimizer.at("betas")[0],
                         .beta2 = optimizer.at("betas")[1],
                         .epsilon = optimizer.at("epsilon"),
                         .weight_decay = optimizer.at("weight_decay")};
    optimizer_.clip_norm = optimizer.at("clip_norm");
    const std::string kind = json.at("batches");
    whole_ = kind == "whole";
    const auto batches =
        nlohmann::json::parse(*ReadFile(absl::StrCat(kGoldenRoot, "batches/", kind, ".json")));
    for (size_t i = 0; i < batches.size(); ++i) {
      steps_.push_back({.batch = BatchOf(batches[i]),
                        .loss = json.at("steps")[i].at("loss"),
                        .gradient_norm = json.at("steps")[i].at("gradient_norm")});
    }
  }

  const std::string& folder() const { return folder_; }
  // Of config.json.
  const absl::StatusOr<ModelSpec>& spec() const { return spec_; }
  const std::vector<GoldenStep>& steps() const { return steps_; }
  // Greedily, `tokens` follow on `prompt`.
  struct Generation {
    std::vector<int32_t> prompt, tokens;
  };
  Generation generation() const {
    const auto json = nlohmann::json::parse(*ReadFile(folder_ + "/generation.json"));
    return {json.at("prompt"), json.at("tokens")};
  }
  // Each batch is one document, because the longest position of a run matters to all.
  bool whole() const { return whole_; }
  const OptimizerStep& optimizer() const { return optimizer_; }

  // What the golden file has under `name`, as it lies there.
  std::vector<float> Values(const std::string& name) const {
    const SafetensorsEntry& entry = reader_->tensors().at(name);
    std::vector<float> values(static_cast<size_t>(entry.count()));
    EXPECT_TRUE(reader_->Read(entry, 0, absl::MakeSpan(values)).ok()) << name;
    return values;
  }

  // The relative L2 distance of each tensor `prefix`NAME of the golden file to what
  // `read(unit, offset)` gives for its elements, as (NAME, distance). Every tensor of the file with
  // that prefix is among them.
  std::vector<std::pair<std::string, double>> Distances(
      const std::string& prefix, const std::vector<SlabLayout>& layouts,
      const std::function<float(int unit, int64_t offset)>& read) const {
    std::vector<std::pair<std::string, double>> distances;
    std::set<std::string> left;
    for (const auto& [name, entry] : reader_->tensors()) {
      if (name.starts_with(prefix)) left.insert(name);
    }
    const auto tensors = ListFileTensors(layouts);
    EXPECT_TRUE(tensors.ok()) << tensors.status();
    if (!tensors.ok()) return distances;
    for (const FileTensor& tensor : *tensors) {
      EXPECT_EQ(left.erase(prefix + tensor.name), 1) << prefix << tensor.name;
      std::vector<float> actual(static_cast<size_t>(tensor.count()));
      for (const RowRun& run : tensor.runs) {
        for (int64_t row = 0; row < run.rows; ++row) {
          for (int64_t column = 0; column < tensor.columns; ++column) {
            const int64_t file_row = run.first_row + row;
            const int64_t at = tensor.transposed ? column * tensor.rows + file_row
                                                 : file_row * tensor.columns + column;
            actual[static_cast<size_t>(at)] =
                read(static_cast<int>(run.unit), run.offset + row * tensor.columns + column);
          }
        }
      }
      distances.emplace_back(tensor.name, RelativeDistance(actual, Values(prefix + tensor.name)));
    }
    EXPECT_TRUE(left.empty()) << "nothing to compare to " << *left.begin();
    return distances;
  }

 private:
  static MicroBatch BatchOf(const nlohmann::json& json) {
    MicroBatch batch;
    json.at("inputs").get_to(batch.inputs);
    json.at("targets").get_to(batch.targets);
    json.at("boundaries").get_to(batch.boundaries);
    for (size_t document = 1; document < batch.boundaries.size(); ++document) {
      const int32_t length = batch.boundaries[document] - batch.boundaries[document - 1];
      for (int32_t position = 0; position < length; ++position) {
        batch.positions.push_back(position);
      }
    }
    batch.target_count = std::count_if(batch.targets.begin(), batch.targets.end(),
                                       [](int32_t target) { return target >= 0; });
    return batch;
  }

  std::string folder_;
  absl::StatusOr<ModelSpec> spec_;
  absl::StatusOr<SafetensorsReader> reader_;
  OptimizerStep optimizer_;
  std::vector<GoldenStep> steps_;
  bool whole_ = false;
};

}  // namespace millrace

#endif  // MILLRACE_TESTS_ENGINE_TRAIN_GOLDEN_MODEL_H_
