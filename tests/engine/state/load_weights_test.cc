#include "engine/state/load_weights.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/file.h"
#include "engine/model/families.h"
#include "engine/model/model_directory.h"
#include "engine/model/slab_layout.h"
#include "engine/state/initial_weights.h"
#include "nlohmann/json.hpp"

namespace millrace {
namespace {

ModelSpec Llama() {
  return *ParseModelConfig(nlohmann::json::parse(R"({"model_type": "llama", "hidden_size": 48,
      "intermediate_size": 100, "num_hidden_layers": 2, "num_attention_heads": 4,
      "num_key_value_heads": 2})"),
                           67);
}

std::unique_ptr<HostState> StateOf(const ModelSpec& spec, Recipe recipe, DType compute) {
  ThreadPool pool(2);
  auto state = HostState::Create(MakeSlabLayouts(spec), recipe, compute, pool);
  EXPECT_TRUE(state.ok()) << state.status();
  return *std::move(state);
}

std::string Write(const ModelSpec& spec, const HostState& state, const std::string& name,
                  DType dtype) {
  std::string folder = ::testing::TempDir() + "/" + name;
  std::filesystem::create_directories(folder);
  const auto files = WriteModelDirectory(spec, state.layouts(),
                                         [&](int64_t unit, int64_t offset, absl::Span<float> out) {
                                           state.ReadMaster(static_cast<int>(unit), offset, out);
                                           return absl::OkStatus();
                                         },
                                         folder, {.dtype = dtype});
  EXPECT_TRUE(files.ok()) << files.status();
  return folder;
}

TEST(LoadWeights, ABfloat16DirectoryGoesInAndComesOutBitForBit) {
  const ModelSpec spec = Llama();
  ThreadPool pool(3);
  const std::unique_ptr<HostState> drawn = StateOf(spec, Recipe::kTiny, DType::kBF16);
  ASSERT_TRUE(DrawWeights(spec, 7, pool, drawn.get()).ok());
  const std::string folder = Write(spec, *drawn, "import", DType::kBF16);
  for (const auto& [recipe, compute] : {std::pair{Recipe::kFull, DType::kBF16},
                                        {Recipe::kTiny, DType::kBF16},
                                        {Recipe::kFp32, DType::kF32}}) {
    const std::unique_ptr<HostState> state = StateOf(spec, recipe, compute);
    ASSERT_TRUE(DrawWeights(spec, 8, pool, state.get()).ok());  // low halves that have to go
    const absl::Status status = LoadWeights(spec, folder, pool, state.get());
    ASSERT_TRUE(status.ok()) << status;
    const std::string again = Write(spec, *state, "export", DType::kBF16);
    for (const char* name : {"/model.safetensors", "/config.json"}) {
      EXPECT_EQ(*ReadFile(folder + name), *ReadFile(again + name));
    }
    EXPECT_EQ(*ReadFile(Write(spec, *drawn, "exact", DType::kF32) + "/model.safetensors"),
              *ReadFile(Write(spec, *state, "loaded", DType::kF32) + "/model.safetensors"));
  }
}

TEST(LoadWeights, AnF32DirectoryKeepsItsBitsInTheMaster) {
  const ModelSpec spec = Llama();
  ThreadPool pool(2);
  const std::unique_ptr<HostState> drawn = StateOf(spec, Recipe::kFp32, DType::kF32);
  ASSERT_TRUE(DrawWeights(spec, 7, pool, drawn.get()).ok());
  const std::string folder = Write(spec, *drawn, "import32", DType::kF32);
  const std::unique_ptr<HostState> state = StateOf(spec, Recipe::kFull, DType::kBF16);
  ASSERT_TRUE(LoadWeights(spec, folder, pool, state.get()).ok());
  const std::string again = Write(spec, *state, "export32", DType::kF32);
  EXPECT_EQ(*ReadFile(folder + "/model.safetensors"), *ReadFile(again + "/model.safetensors"));
}

TEST(LoadWeights, EndsWithWhatTheCheckSays) {
  const ModelSpec spec = Llama();
  ThreadPool pool(2);
  const std::unique_ptr<HostState> state = StateOf(spec, Recipe::kFull, DType::kBF16);
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    const std::string folder = Write(spec, *state, "stopped", dtype);
    EXPECT_TRUE(absl::IsCancelled(
        LoadWeights(spec, folder, pool, state.get(), [] { return absl::CancelledError("stop"); })));
  }
}

}  // namespace
}  // namespace millrace
