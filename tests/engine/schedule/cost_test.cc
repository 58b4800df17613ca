#include "engine/schedule/cost.h"

#include <vector>

#include "engine/schedule/needed_flops.h"
#include "gtest/gtest.h"
#include "tests/engine/model/family_specs.h"

namespace millrace {
namespace {

constexpr int64_t kTokens = 256, kDocument = 64;
constexpr double kRate = 1e9, kBandwidth = 1e9, kSoftcapRate = 1e6;

// Every rate the same at every size, so that times tell what is counted.
DeviceProfile EvenDevice() {
  DeviceProfile profile;
  profile.products.fill(RateGrid(kRate));
  profile.attention_forward = profile.attention_backward = RateGrid(kRate);
  profile.head = profile.head_statistics = profile.head_gradient = RateGrid(kRate);
  profile.softcap_rate = kSoftcapRate;
  profile.pass_bandwidth.fill(kBandwidth);
  profile.host.memory_bandwidth = kBandwidth;
  profile.host.pass_core_bandwidth.fill(kBandwidth);
  return profile;
}

Work WorkOf(const ModelSpec& spec, Opcode opcode, int unit,
            const DeviceProfile& profile = EvenDevice()) {
  ScheduledModel model{.spec = spec, .layouts = MakeSlabLayouts(spec)};
  model.compute_dtype = DType::kF32;
  model.gradient_dtypes.assign(model.layouts.size(), DType::kF32);
  const Plan plan{.shape = {.micro_batches = 1,
                            .tokens_per_micro_batch = kTokens,
                            .longest_document = kDocument,
                            .token_chunk = kTokens},
                  .unified = false};
  return CostModel(model, plan, profile, {})
      .Of({.opcode = opcode, .stream = StreamId::kCompute, .unit = unit, .first_gradient = true});
}
double SecondsOf(const ModelSpec& spec, Opcode opcode, int unit,
                 const DeviceProfile& profile = EvenDevice()) {
  return WorkOf(spec, opcode, unit, profile)[Resource::kDevice];
}

double Pairs(int64_t window) { return AttentionPairsInDocuments(kTokens, kDocument, window); }

TEST(CostTest, ALayerWithAWindowTakesWhatItsQueriesSee) {
  ModelSpec spec = LlamaSpec(/*tied=*/false);
  spec.window = 16;
  spec.windowed = {false, true, false};
  const double spared = 32 * (Pairs(0) - Pairs(16));  // times query_size
  EXPECT_NEAR(
      WorkOf(spec, Opcode::kBlockForward, 1).flops - WorkOf(spec, Opcode::kBlockForward, 2).flops,
      4 * spared, 1);
  EXPECT_NEAR(
      SecondsOf(spec, Opcode::kBlockBackward, 3) - SecondsOf(spec, Opcode::kBlockBackward, 2),
      8 * spared / kRate, 1e-9);
}

TEST(CostTest, AttentionInAWindowIsAsFastAsInDocumentsOfTwiceItsLength) {
  ModelSpec spec = LlamaSpec(/*tied=*/false);
  spec.window = 8;
  spec.windowed = {true, true, true};
  DeviceProfile profile = EvenDevice();
  profile.attention_forward = RateGrid({{16, 64}}, {kRate / 4, kRate});
  const double flops = 4 * 32 * Pairs(8);
  EXPECT_NEAR(SecondsOf(spec, Opcode::kBlockForward, 1, profile) -
                  SecondsOf(spec, Opcode::kBlockForward, 1),
              3 * flops / kRate, 1e-9);
}

TEST(CostTest, SoftCapsTakeTimeForEveryScoreAndLogit) {
  const ModelSpec plain = LlamaSpec(/*tied=*/false);
  ModelSpec capped = plain;
  capped.attention_softcap = 50;
  capped.logit_softcap = 30;
  const double attention = 4 * Pairs(0) / kSoftcapRate;  // four heads
  for (Opcode opcode : {Opcode::kBlockForward, Opcode::kBlockRecompute, Opcode::kBlockBackward}) {
    EXPECT_NEAR(SecondsOf(capped, opcode, 1) - SecondsOf(plain, opcode, 1), attention, 1e-9);
  }
  EXPECT_NEAR(SecondsOf(capped, Opcode::kHead, 4) - SecondsOf(plain, Opcode::kHead, 4),
              kTokens * 71 / kSoftcapRate, 1e-9);
}

TEST(CostTest, RecomputingSparesProductsThatTheOutputAloneNeeds) {
  const auto spared = [](const ModelSpec& spec) {
    return WorkOf(spec, Opcode::kBlockForward, 1).flops -
           WorkOf(spec, Opcode::kBlockRecompute, 1).flops;
  };
  const double mlp_out = 2.0 * kTokens * 32 * 48, attention_out = 2.0 * kTokens * 32 * 32;
  EXPECT_DOUBLE_EQ(spared(LlamaSpec(false)), mlp_out);
  EXPECT_DOUBLE_EQ(spared(NeoxSpec()), mlp_out + attention_out);
  EXPECT_DOUBLE_EQ(spared(OlmoSpec()), 0);  // the norms after are differentiated at them
}

TEST(CostTest, RemakingTakesThePassesThatTheBlockHas) {
  const double row = kTokens * sizeof(float);
  const auto bytes = [](const ModelSpec& spec) {
    return SecondsOf(spec, Opcode::kBlockRemake, 1) * kBandwidth;
  };
  const double norm = 2 * 32 * row, gated = 3 * 48 * row, queries_keys = 2 * (32 + 16) * row;
  EXPECT_NEAR(bytes(LlamaSpec(false)), 2 * norm + gated, 1);
  EXPECT_NEAR(bytes(NeoxSpec()), 2 * norm + 2 * 48 * row, 1);
  // Queries and keys are normalized and rotated.
  EXPECT_NEAR(bytes(OlmoSpec()), 2 * norm + gated + 2 * queries_keys, 1);
  EXPECT_NEAR(bytes(GemmaSpec()), 4 * norm + gated + 2 * queries_keys, 1);
}

}  // namespace
}  // namespace millrace
