#include "engine/model/initializer.h"

#include <cmath>
#include <cstring>
#include <numbers>
#include <vector>

#include "engine/base/random.h"
#include "engine/model/families.h"
#include "engine/model/normal_fill.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

ModelSpec SpecOf(const char* config) {
  absl::StatusOr<ModelSpec> spec = ParseModelConfig(nlohmann::json::parse(config), 67);
  EXPECT_TRUE(spec.ok()) << spec.status();
  return *spec;
}

std::vector<float> Initialize(const ModelSpec& spec, const SlabLayout& layout, uint64_t seed,
                              int threads) {
  ThreadPool pool(threads);
  std::vector<float> slab(layout.count, 99.0f);
  InitializeSlab(spec, layout, seed, pool, absl::MakeSpan(slab));
  return slab;
}

struct Moments {
  double mean = 0, deviation = 0;
};

Moments MomentsOf(absl::Span<const float> values) {
  double sum = 0, squares = 0;
  for (float value : values) {
    sum += value;
    squares += static_cast<double>(value) * value;
  }
  const double n = static_cast<double>(values.size());
  return {sum / n, std::sqrt(squares / n - (sum / n) * (sum / n))};
}

TEST(FillNormal, IsBoxMullerOnPhilox) {
  std::vector<float> numbers(4000);
  FillNormal(11, 22, 0, 1.0f, absl::MakeSpan(numbers));
  for (uint64_t block = 0; block < 1000; ++block) {
    const auto words = Philox4x32(11, 22, block);
    for (uint64_t pair = 0; pair < 2; ++pair) {
      const double u = ((words[2 * pair] >> 8) + 1.0) * 0x1p-24;
      const double angle = 2.0 * std::numbers::pi * words[2 * pair + 1] * 0x1p-32;
      const double radius = std::sqrt(-2.0 * std::log(u));
      EXPECT_NEAR(numbers[4 * block + 2 * pair], radius * std::cos(angle), 2e-6);
      EXPECT_NEAR(numbers[4 * block + 2 * pair + 1], radius * std::sin(angle), 2e-6);
    }
  }
}

TEST(FillNormal, AnyRangeHoldsThePartOfTheSequenceThatItsIndexSays) {
  std::vector<float> whole(3000);
  FillNormal(1, 2, 0, 1.0f, absl::MakeSpan(whole));
  for (const auto& [first, count] : std::vector<std::pair<int, int>>{
           {0, 1}, {1, 1}, {3, 300}, {255, 2}, {256, 256}, {513, 2487}}) {
    std::vector<float> part(count);
    FillNormal(1, 2, first, 1.0f, absl::MakeSpan(part));
    EXPECT_EQ(absl::MakeConstSpan(part), absl::MakeConstSpan(whole).subspan(first, count)) << first;
  }
}

TEST(FillNormal, IsTheSameOnEveryMachine) {
  std::vector<float> numbers(100'003);
  FillNormal(2026, 7, 5, 0.02f, absl::MakeSpan(numbers));
  uint64_t hash = 0xcbf29ce484222325u;
  for (float number : numbers) {
    uint32_t bits;
    std::memcpy(&bits, &number, sizeof(bits));
    hash = (hash ^ bits) * 0x100000001b3u;
  }
  EXPECT_EQ(hash, 0xba160049925ac444u);
}

TEST(FillNormal, HasTheMomentsOfTheNormalDistribution) {
  std::vector<float> numbers(1 << 20);
  FillNormal(5, 6, 0, 1.0f, absl::MakeSpan(numbers));
  const Moments moments = MomentsOf(numbers);
  EXPECT_NEAR(moments.mean, 0.0, 4e-3);
  EXPECT_NEAR(moments.deviation, 1.0, 3e-3);
  double fourth = 0;
  for (float x : numbers) fourth += std::pow(x, 4);
  EXPECT_NEAR(fourth / static_cast<double>(numbers.size()), 3.0, 0.05);
}

TEST(InitializeSlab, DoesNotDependOnTheNumberOfThreads) {
  const ModelSpec spec = SpecOf(R"({"model_type": "llama", "hidden_size": 96,
      "intermediate_size": 200, "num_hidden_layers": 1, "num_attention_heads": 4})");
  for (const SlabLayout& layout : MakeSlabLayouts(spec)) {
    const std::vector<float> one = Initialize(spec, layout, 7, 1);
    EXPECT_EQ(one, Initialize(spec, layout, 7, 2));
    EXPECT_EQ(one, Initialize(spec, layout, 7, 5));
  }
}

TEST(InitializeSlab, DependsOnTheSeedAndTheTensor) {
  const ModelSpec spec = SpecOf(R"({"model_type": "llama", "hidden_size": 32,
      "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4})");
  const std::vector<SlabLayout> layouts = MakeSlabLayouts(spec);
  EXPECT_NE(Initialize(spec, layouts[1], 7, 1), Initialize(spec, layouts[1], 8, 1));
  EXPECT_NE(Initialize(spec, layouts[1], 7, 1), Initialize(spec, layouts[2], 7, 1));
}

TEST(InitializeSlab, DoesNotDependOnFusing) {
  const ModelSpec spec = SpecOf(R"({"model_type": "llama", "hidden_size": 32,
      "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4})");
  const SlabLayout block = MakeSlabLayouts(spec)[1];
  const TensorLayout& qkv = *block.Find(TensorRole::kQkv);
  // The value projection on its own.
  SlabLayout alone;
  alone.tensors.push_back({TensorRole::kQkv, 32, 32, 0, true, {qkv.parts[2]}});
  alone.tensors[0].parts[0].first_row = 0;
  alone.count = 2048;
  const std::vector<float> fused = Initialize(spec, block, 7, 2);
  const std::vector<float> single = Initialize(spec, alone, 7, 2);
  const absl::Span<const float> values =
      absl::MakeConstSpan(fused).subspan(qkv.offset, qkv.count());
  EXPECT_EQ(values.subspan(2 * values.size() / 3), absl::MakeConstSpan(single).subspan(0, 1024));
}

TEST(InitializeSlab, DoesNotDependOnTheOrderOfRowsInTheSlab) {
  const ModelSpec spec = SpecOf(R"({"model_type": "llama", "hidden_size": 32,
      "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4})");
  SlabLayout whole, swapped;
  whole.count = swapped.count = 2048;
  whole.tensors.push_back({TensorRole::kQkv, 48, 32, 0, true, {{"qkv", 0, 48}}});
  swapped.tensors.push_back({TensorRole::kQkv,
                             48,
                             32,
                             0,
                             true,
                             {{"qkv", 0, 32, false, 16, 48}, {"qkv", 32, 16, false, 0, 48}}});
  const std::vector<float> a = Initialize(spec, whole, 7, 2);
  const std::vector<float> b = Initialize(spec, swapped, 7, 2);
  const auto rows = [](const std::vector<float>& slab, int64_t first, int64_t count) {
    return absl::MakeConstSpan(slab).subspan(first * 32, count * 32);
  };
  EXPECT_EQ(rows(a, 0, 16), rows(b, 32, 16));
  EXPECT_EQ(rows(a, 16, 32), rows(b, 0, 32));
}

TEST(InitializeSlab, FillsByRole) {
  const ModelSpec spec = SpecOf(R"({"model_type": "gpt2", "n_embd": 128, "n_layer": 8,
      "n_head": 4, "n_positions": 64, "initializer_range": 0.05})");
  const SlabLayout block = MakeSlabLayouts(spec)[3];
  const std::vector<float> slab = Initialize(spec, block, 7, 2);
  auto values = [&](TensorRole role) {
    const TensorLayout* tensor = block.Find(role);
    return absl::MakeConstSpan(slab).subspan(tensor->offset, tensor->count());
  };
  for (float value : values(TensorRole::kAttentionNorm)) EXPECT_EQ(value, 1.0f);
  for (float value : values(TensorRole::kMlpNormBias)) EXPECT_EQ(value, 0.0f);
  for (float value : values(TensorRole::kQkvBias)) EXPECT_EQ(value, 0.0f);
  EXPECT_NEAR(MomentsOf(values(TensorRole::kQkv)).deviation, 0.05, 0.001);
  EXPECT_NEAR(MomentsOf(values(TensorRole::kMlpIn)).deviation, 0.05, 0.001);
  EXPECT_NEAR(MomentsOf(values(TensorRole::kAttentionOutput)).deviation, 0.05 / 4, 0.0005);
  EXPECT_NEAR(MomentsOf(values(TensorRole::kMlpOut)).deviation, 0.05 / 4, 0.0005);
  int64_t used = 0;
  for (float value : slab) used += value != 0.0f;
  EXPECT_LE(used, block.parameters());  // padding is zero
}

}  // namespace
}  // namespace millrace
