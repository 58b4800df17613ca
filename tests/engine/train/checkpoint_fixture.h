// A small model's HostState with something in every byte, for tests of checkpoints.
#ifndef MILLRACE_TESTS_ENGINE_TRAIN_CHECKPOINT_FIXTURE_H_
#define MILLRACE_TESTS_ENGINE_TRAIN_CHECKPOINT_FIXTURE_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/random.h"
#include "engine/model/families.h"
#include "engine/model/slab_layout.h"
#include "engine/state/host_state.h"
#include "engine/train/checkpoint.h"
#include "nlohmann/json.hpp"

namespace millrace {

inline ModelSpec TinyLlama(bool tied = false) {
  nlohmann::json config = nlohmann::json::parse(R"({"model_type": "llama", "hidden_size": 24,
      "num_hidden_layers": 2, "num_attention_heads": 3, "num_key_value_heads": 1,
      "intermediate_size": 40, "vocab_size": 257, "max_position_embeddings": 64})");
  config["tie_word_embeddings"] = tied;
  return *ParseModelConfig(config, std::nullopt);
}

// Parameters drawn from `seed`, padding zero, as in a real run; any bits in all that is kept beside
// what is streamed.
inline std::unique_ptr<HostState> RandomState(const ModelSpec& model, DType compute, uint64_t seed,
                                              Recipe recipe = Recipe::kFull,
                                              OptimizerKind optimizer = OptimizerKind::kAdamW) {
  ThreadPool pool(1);
  auto state = HostState::Create(MakeSlabLayouts(model), recipe, compute, pool, optimizer);
  EXPECT_TRUE(state.ok()) << state.status();
  for (int unit = 0; unit < (*state)->num_units(); ++unit) {
    const CounterRandom random(seed, static_cast<uint64_t>(unit));
    for (const TensorLayout& tensor : (*state)->layout(unit).tensors) {
      for (int64_t i = tensor.offset; i < tensor.offset + tensor.count(); ++i) {
        const float value = static_cast<float>(random.Normal(static_cast<uint64_t>(i)));
        (*state)->WriteMaster(unit, i, {&value, 1});
      }
    }
    const auto slabs = (*state)->Slabs(unit);
    for (size_t slab = 1; slab < slabs.size(); ++slab) {
      const CounterRandom bits(seed, uint64_t{1} << 32 | slab);
      for (size_t i = 0; i < slabs[slab].size(); ++i) {
        slabs[slab][i] = static_cast<std::byte>(bits.Below(256, i));
      }
    }
  }
  return std::move(*state);
}

inline bool BitwiseEqual(const HostState& a, const HostState& b) {
  for (int unit = 0; unit < a.num_units(); ++unit) {
    const auto one = a.Slabs(unit), other = b.Slabs(unit);
    if (one.size() != other.size()) return false;
    for (size_t i = 0; i < one.size(); ++i) {
      if (one[i] != other[i]) return false;
    }
  }
  return true;
}

inline TrainerState StateOfStep(int64_t step) {
  TrainerState state;
  state.step = step;
  state.total_tokens = step * 1024;
  state.cursor = {.epoch = 3, .position = 17};
  state.identity = {{"train.seed", "7"}, {"data.train", "\"abc\""}};
  return state;
}

// A new empty folder.
inline std::string NewFolder() {
  std::string pattern = testing::TempDir() + "/checkpoints.XXXXXX";
  EXPECT_NE(mkdtemp(pattern.data()), nullptr);
  return pattern;
}

inline std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  return names;
}

}  // namespace millrace

#endif  // MILLRACE_TESTS_ENGINE_TRAIN_CHECKPOINT_FIXTURE_H_
