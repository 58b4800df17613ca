#include "engine/schedule/needed_flops.h"

#include "gtest/gtest.h"
#include "tests/engine/model/family_specs.h"

namespace millrace {
namespace {

TEST(AttentionPairsTest, AreThoseThatQueriesSee) {
  for (int64_t window : {0, 1, 3, 7, 8}) {
    for (int64_t tokens : {1, 3, 7}) {
      int64_t pairs = 0;
      for (int64_t query = 0; query < tokens; ++query) {
        for (int64_t key = 0; key <= query; ++key) pairs += window == 0 || query - key < window;
      }
      EXPECT_EQ(AttentionPairs(static_cast<double>(tokens), window), pairs)
          << tokens << " tokens, window " << window;
    }
  }
  EXPECT_EQ(AttentionPairsInDocuments(12, 4, 0), 30);
  EXPECT_EQ(AttentionPairsInDocuments(12, 4, 2), 21);
}

TEST(NeededFlopsTest, CountTheLayersWithAWindow) {
  ModelSpec spec = LlamaSpec(/*tied=*/false);
  const double without = NeededFlops(spec, 10, 0, 0);
  EXPECT_DOUBLE_EQ(NeededFlops(spec, 10, 100, 7) - without, 12 * 32 * 300);
  spec.window = 4;
  spec.windowed = {true, false, true};
  EXPECT_DOUBLE_EQ(NeededFlops(spec, 10, 100, 7) - without, 12 * 32 * 114);
}

TEST(NeededFlopsTest, OfAStepAreThoseOfItsDocuments) {
  ModelSpec spec = LlamaSpec(/*tied=*/false);
  spec.window = 2;
  spec.windowed = {true, false, true};
  const StepShape shape{.micro_batches = 2, .tokens_per_micro_batch = 8, .longest_document = 4};
  EXPECT_DOUBLE_EQ(NeededFlops(spec, shape), NeededFlops(spec, 16, 4 * 10, 4 * 7));
}

}  // namespace
}  // namespace millrace
