#include "engine/model/slab_layout.h"

#include <set>
#include <string>
#include <vector>

#include "engine/model/families.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;

ModelSpec SpecOf(const char* config) {
  absl::StatusOr<ModelSpec> spec = ParseModelConfig(nlohmann::json::parse(config), 67);
  EXPECT_TRUE(spec.ok()) << spec.status();
  return *spec;
}

ModelSpec Llama() {
  return SpecOf(R"({"model_type": "llama", "hidden_size": 40, "intermediate_size": 72,
      "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2})");
}

ModelSpec Gpt2() {
  return SpecOf(R"({"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 4,
      "n_positions": 20})");
}

std::vector<std::string> Names(const TensorLayout& tensor) {
  std::vector<std::string> names;
  for (const TensorPart& part : tensor.parts) names.push_back(part.name);
  return names;
}

TEST(SlabLayout, OneSlabAUnitInForwardOrder) {
  const std::vector<SlabLayout> slabs = MakeSlabLayouts(Llama());
  ASSERT_EQ(slabs.size(), 5);
  EXPECT_EQ(slabs[0].kind, UnitKind::kEmbedding);
  EXPECT_EQ(slabs[4].kind, UnitKind::kHead);
  for (int64_t i = 0; i < 5; ++i) EXPECT_EQ(slabs[i].index, i);
  for (int64_t i = 1; i < 4; ++i) EXPECT_EQ(slabs[i].kind, UnitKind::kBlock);
}

TEST(SlabLayout, TensorsAreAlignedInsideTheSlabAndDoNotOverlap) {
  for (const ModelSpec& spec : {Llama(), Gpt2()}) {
    for (const SlabLayout& slab : MakeSlabLayouts(spec)) {
      int64_t end = 0;
      for (const TensorLayout& tensor : slab.tensors) {
        EXPECT_EQ(tensor.offset % 32, 0);
        EXPECT_GE(tensor.offset, end);
        end = tensor.offset + tensor.count();
        int64_t row = 0;
        for (const TensorPart& part : tensor.parts) {
          EXPECT_EQ(part.first_row, row);
          row += part.rows;
        }
        EXPECT_EQ(row, tensor.rows);
      }
      EXPECT_GE(slab.count, end);
      EXPECT_LT(slab.count - end, 2048);
      EXPECT_EQ(slab.count % 2048, 0);
    }
  }
}

TEST(SlabLayout, LlamaFusesProjectionsUnderTheirNamesInAModelDirectory) {
  const SlabLayout block = MakeSlabLayouts(Llama())[2];
  const TensorLayout* qkv = block.Find(TensorRole::kQkv);
  ASSERT_NE(qkv, nullptr);
  EXPECT_EQ(qkv->rows, 40 + 2 * 20);
  EXPECT_EQ(qkv->columns, 40);
  EXPECT_THAT(Names(*qkv), ElementsAre("model.layers.1.self_attn.q_proj.weight",
                                       "model.layers.1.self_attn.k_proj.weight",
                                       "model.layers.1.self_attn.v_proj.weight"));
  EXPECT_THAT(
      Names(*block.Find(TensorRole::kMlpIn)),
      ElementsAre("model.layers.1.mlp.gate_proj.weight", "model.layers.1.mlp.up_proj.weight"));
  EXPECT_FALSE(qkv->parts[0].transposed);
  EXPECT_EQ(block.Find(TensorRole::kQkvBias), nullptr);
  EXPECT_EQ(block.Find(TensorRole::kAttentionNormBias), nullptr);
}

TEST(SlabLayout, Gpt2TransposesMatricesOfBlocksButNotEmbeddings) {
  const std::vector<SlabLayout> slabs = MakeSlabLayouts(Gpt2());
  const TensorLayout* qkv = slabs[1].Find(TensorRole::kQkv);
  ASSERT_NE(qkv, nullptr);
  EXPECT_THAT(Names(*qkv), ElementsAre("transformer.h.0.attn.c_attn.weight"));
  EXPECT_TRUE(qkv->parts[0].transposed);
  EXPECT_THAT(Names(*slabs[1].Find(TensorRole::kQkvBias)),
              ElementsAre("transformer.h.0.attn.c_attn.bias"));
  EXPECT_FALSE(slabs[1].Find(TensorRole::kQkvBias)->parts[0].transposed);
  EXPECT_FALSE(slabs[0].Find(TensorRole::kTokenEmbedding)->parts[0].transposed);
  EXPECT_THAT(Names(*slabs[0].Find(TensorRole::kPositionEmbedding)),
              ElementsAre("transformer.wpe.weight"));
  EXPECT_EQ(slabs[0].Find(TensorRole::kPositionEmbedding)->rows, 20);
}

TEST(SlabLayout, TiedHeadHasNoProjection) {
  EXPECT_EQ(MakeSlabLayouts(Gpt2()).back().Find(TensorRole::kOutputProjection), nullptr);
  const SlabLayout head = MakeSlabLayouts(Llama()).back();
  const TensorLayout* projection = head.Find(TensorRole::kOutputProjection);
  ASSERT_NE(projection, nullptr);
  EXPECT_THAT(Names(*projection), ElementsAre("lm_head.weight"));
}

TEST(SlabLayout, DecayIsForMatricesAndEmbeddingsOnly) {
  const std::set<TensorRole> decaying = {TensorRole::kTokenEmbedding,
                                         TensorRole::kPositionEmbedding,
                                         TensorRole::kQkv,
                                         TensorRole::kAttentionOutput,
                                         TensorRole::kMlpIn,
                                         TensorRole::kMlpOut,
                                         TensorRole::kOutputProjection};
  for (const ModelSpec& spec : {Llama(), Gpt2()}) {
    for (const SlabLayout& slab : MakeSlabLayouts(spec)) {
      for (const TensorLayout& tensor : slab.tensors) {
        EXPECT_EQ(tensor.decay, decaying.count(tensor.role) > 0) << tensor.parts[0].name;
      }
    }
  }
}

TEST(SlabLayout, CountsTheParametersOfGpt2) {
  int64_t parameters = 0;
  for (const SlabLayout& slab : MakeSlabLayouts(SpecOf(R"({"model_type": "gpt2"})"))) {
    parameters += slab.parameters();
  }
  // 124,439,808 with the published vocabulary of 50,257.
  EXPECT_EQ(parameters, 124'439'808 - (50257 - 67) * 768);
}

}  // namespace
}  // namespace millrace
