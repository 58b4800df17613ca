#include "engine/state/host_state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "engine/state/split_master.h"

namespace millrace {
namespace {

std::vector<SlabLayout> Layouts() {
  SlabLayout embedding{.kind = UnitKind::kEmbedding, .index = 0};
  embedding.tensors = {
      {.role = TensorRole::kTokenEmbedding, .rows = 10, .columns = 7, .offset = 0, .decay = true}};
  embedding.count = 2048;
  SlabLayout block{.kind = UnitKind::kBlock, .index = 1};
  block.tensors = {
      {.role = TensorRole::kAttentionNorm, .rows = 7, .columns = 1, .offset = 0},
      {.role = TensorRole::kQkv, .rows = 60, .columns = 50, .offset = 32, .decay = true}};
  block.count = 4096;
  return {embedding, block};
}

std::vector<float> Values(int64_t count) {
  std::vector<float> values(count);
  uint32_t state = 7;
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;
    value = std::bit_cast<float>((state & 0x807fffffu) | 0x3c000000u);
  }
  return values;
}

TEST(HostStateTest, StreamsHighHalvesAndKeepsTheExactMasterWhenComputeIsBf16) {
  ThreadPool pool(2);
  auto state = HostState::Create(Layouts(), Recipe::kFull, DType::kBF16, pool);
  ASSERT_TRUE(state.ok()) << state.status();
  const std::vector<float> values = Values(3000);
  (*state)->WriteMaster(1, 32, values);
  const BFloat16* streamed = static_cast<const BFloat16*>((*state)->StreamedWeights(1));
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(streamed[32 + i].bits, Split(values[i]).high.bits);
  }
  std::vector<float> back(3000);
  (*state)->ReadMaster(1, 32, absl::MakeSpan(back));
  EXPECT_EQ(back, values);
  EXPECT_EQ((*state)->StreamedBytes(1), 4096u * 2);
}

TEST(HostStateTest, WeightsAloneTakeNothingElse) {
  ThreadPool pool(2);
  for (DType dtype : {DType::kBF16, DType::kF32}) {
    auto state = HostState::CreateWeights(Layouts(), dtype, pool);
    ASSERT_TRUE(state.ok()) << state.status();
    ASSERT_EQ((*state)->memory().size(), 1u);
    EXPECT_EQ((*state)->memory()[0].bytes, static_cast<int64_t>((2048 + 4096) * SizeOf(dtype)));
    EXPECT_EQ((*state)->Slabs(1).size(), 1u);
    const float value = 0.1f;
    (*state)->WriteMaster(1, 40, absl::MakeConstSpan(&value, 1));
    float back = 0;
    (*state)->ReadMaster(1, 40, {&back, 1});
    EXPECT_EQ(back, dtype == DType::kF32 ? value : BFloat16::FromFloat(value).ToFloat());
  }
}

TEST(HostStateTest, FindsAWeightThatIsNotFinite) {
  ThreadPool pool(2);
  for (const auto& [recipe, compute] : {std::pair{Recipe::kFull, DType::kBF16},
                                        {Recipe::kTiny, DType::kBF16},
                                        {Recipe::kFull, DType::kF32}}) {
    for (float bad :
         {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      auto state = HostState::Create(Layouts(), recipe, compute, pool);
      ASSERT_TRUE(state.ok()) << state.status();
      const float largest = 3e38f;
      (*state)->WriteMaster(1, 40, {&largest, 1});
      EXPECT_TRUE((*state)->WeightsFinite(1, pool));
      (*state)->WriteMaster(1, 2999, {&bad, 1});
      EXPECT_FALSE((*state)->WeightsFinite(1, pool));
      EXPECT_TRUE((*state)->WeightsFinite(0, pool));
    }
  }
}

TEST(HostStateTest, StreamsTheMasterItselfWhenComputeIsF32) {
  ThreadPool pool(2);
  for (Recipe recipe : {Recipe::kFull, Recipe::kFp32}) {
    auto state = HostState::Create(Layouts(), recipe, DType::kF32, pool);
    ASSERT_TRUE(state.ok()) << state.status();
    const std::vector<float> values = Values(70);
    (*state)->WriteMaster(0, 0, values);
    const float* streamed = static_cast<const float*>((*state)->StreamedWeights(0));
    EXPECT_EQ(std::vector<float>(streamed, streamed + 70), values);
    EXPECT_EQ((*state)->low_halves(0), nullptr);
  }
}

TEST(GradientDTypeTest, IsF32ForTheEmbeddingAndElseTheComputeType) {
  EXPECT_EQ(GradientDType(Layouts()[0], DType::kBF16), DType::kF32);
  EXPECT_EQ(GradientDType(Layouts()[1], DType::kBF16), DType::kBF16);
}

TEST(HostStateTest, SlabsLieOnPages) {
  ThreadPool pool(1);
  auto state = HostState::Create(Layouts(), Recipe::kFull, DType::kBF16, pool);
  ASSERT_TRUE(state.ok());
  for (int unit = 0; unit < (*state)->num_units(); ++unit) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>((*state)->StreamedWeights(unit)) % 4096, 0u);
  }
}

TEST(HostStateTest, RoundsToNearestBf16WhereThereIsNoMaster) {
  ThreadPool pool(1);
  auto state = HostState::Create(Layouts(), Recipe::kTiny, DType::kBF16, pool);
  ASSERT_TRUE(state.ok()) << state.status();
  const std::vector<float> values = Values(3000);
  (*state)->WriteMaster(1, 32, values);
  std::vector<float> back(3000);
  (*state)->ReadMaster(1, 32, absl::MakeSpan(back));
  const BFloat16* streamed = static_cast<const BFloat16*>((*state)->StreamedWeights(1));
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(streamed[32 + i].bits, BFloat16::FromFloat(values[i]).bits);
    ASSERT_EQ(back[i], streamed[32 + i].ToFloat());
  }
  EXPECT_EQ((*state)->low_halves(1), nullptr);
}

// What is kept of a parameter, in 128ths of a byte.
struct Kept {
  Recipe recipe;
  DType compute;
  OptimizerKind optimizer;
  int64_t bytes128;
};

TEST(HostStateTest, RecipeAndOptimizerDecideTheBytesAParameter) {
  constexpr OptimizerKind kAdamW = OptimizerKind::kAdamW, kSgd = OptimizerKind::kSgd,
                          kLion = OptimizerKind::kLion;
  for (const Kept& kept : {Kept{Recipe::kFull, DType::kBF16, kAdamW, 12 * 128},
                           Kept{Recipe::kFp32, DType::kF32, kAdamW, 12 * 128},
                           Kept{Recipe::kFull, DType::kBF16, kSgd, 8 * 128},
                           Kept{Recipe::kLean, DType::kBF16, kAdamW, 6 * 128 + 2},
                           Kept{Recipe::kLean, DType::kF32, kLion, 5 * 128 + 1},
                           Kept{Recipe::kTiny, DType::kBF16, kAdamW, 4 * 128 + 2},
                           Kept{Recipe::kTiny, DType::kBF16, kSgd, 3 * 128 + 1}}) {
    ThreadPool pool(1);
    auto state = HostState::Create(Layouts(), kept.recipe, kept.compute, pool, kept.optimizer);
    ASSERT_TRUE(state.ok()) << state.status();
    int64_t bytes = 0, slabs = 0;
    for (const MemoryPool& memory : (*state)->memory()) bytes += memory.bytes;
    for (int unit = 0; unit < (*state)->num_units(); ++unit) {
      for (const auto& slab : (*state)->Slabs(unit)) slabs += static_cast<int64_t>(slab.size());
    }
    EXPECT_EQ(bytes, kept.bytes128 * (2048 + 4096) / 128)
        << NameOf(kept.recipe) << " " << NameOf(kept.optimizer);
    EXPECT_EQ(slabs, bytes);
  }
}

TEST(HostStateTest, SlabsBeginWithWhatIsStreamedAndAreAllThatChanges) {
  ThreadPool pool(1);
  auto state = HostState::Create(Layouts(), Recipe::kLean, DType::kBF16, pool);
  ASSERT_TRUE(state.ok()) << state.status();
  const auto slabs = (*state)->Slabs(1);
  ASSERT_EQ(slabs.size(), 6u);
  EXPECT_EQ(slabs[0].data(), (*state)->StreamedWeights(1));
  EXPECT_EQ(slabs[1].data(), static_cast<void*>((*state)->low_halves(1)));
  EXPECT_EQ(slabs[2].data(), static_cast<void*>((*state)->first_codes(1).codes));
  EXPECT_EQ(slabs[5].data(), static_cast<void*>((*state)->second_codes(1).exponents));
  EXPECT_EQ((*state)->first_moment(1), nullptr);
  EXPECT_EQ((*state)->first_element(1), 2048);
}

TEST(HostStateTest, RefusesTinyWithF32ComputeByFieldAndFix) {
  ThreadPool pool(1);
  auto state = HostState::Create(Layouts(), Recipe::kTiny, DType::kF32, pool);
  EXPECT_EQ(state.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(state.status().message().find("precision.compute: "), 0u);
}

TEST(HostStateTest, RefusesFp32WithBf16Compute) {
  ThreadPool pool(1);
  auto state = HostState::Create(Layouts(), Recipe::kFp32, DType::kBF16, pool);
  EXPECT_EQ(state.status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace millrace
