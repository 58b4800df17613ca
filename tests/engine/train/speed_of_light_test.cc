#include "engine/train/speed_of_light.h"

#include <gtest/gtest.h>

#include <vector>

namespace millrace {
namespace {

ModelSpec Model() {
  ModelSpec model;
  model.vocab_size = 100;
  model.hidden_size = 16;
  model.num_layers = 3;
  model.num_heads = 4;
  model.num_kv_heads = 2;
  model.head_dim = 4;
  model.intermediate_size = 32;
  model.gated_mlp = true;
  return model;
}

MicroBatch Documents(const std::vector<int>& lengths) {
  MicroBatch batch;
  batch.boundaries = {0};
  for (int length : lengths) batch.boundaries.push_back(batch.boundaries.back() + length);
  batch.inputs.resize(batch.boundaries.back());
  return batch;
}

TEST(NeededFlopsTest, IsSixTimesMatricesTimesTokensAndCausalAttention) {
  // q 16, k 8, v 8 rows; output 16; gate and up 64; down 32 columns.
  const double matrices = 3 * (16 * 32 + 16 * 16 + 16 * 64 + 16 * 32) + 16 * 100;
  const double pairs = 10 * 11 / 2;
  EXPECT_DOUBLE_EQ(NeededFlops(Model(), {Documents({10})}),
                   6 * matrices * 10 + 12 * 3 * 16 * pairs);
}

TEST(NeededFlopsTest, DocumentsDoNotAttendToEachOther) {
  const double whole = NeededFlops(Model(), {Documents({10})});
  const double cut = NeededFlops(Model(), {Documents({4, 6})});
  EXPECT_DOUBLE_EQ(whole - cut, 12.0 * 3 * 16 * (55 - 10 - 21));
}

TEST(NeededFlopsTest, AddsUpOverMicroBatches) {
  EXPECT_DOUBLE_EQ(
      NeededFlops(Model(), {Documents({10}), Documents({7})}),
      NeededFlops(Model(), {Documents({10})}) + NeededFlops(Model(), {Documents({7})}));
}

}  // namespace
}  // namespace millrace
