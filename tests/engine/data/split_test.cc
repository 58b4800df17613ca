#include "engine/data/split.h"

#include <algorithm>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace millrace {
namespace {

TEST(Split, PartsAreDisjointAndComplete) {
  for (int64_t sequences : {2, 3, 4, 5, 10, 49, 100, 1001}) {
    for (double fraction : {0.0, 1e-9, 0.02, 0.1, 1.0 / 3, 0.49, 0.5}) {
      const Split split = Split::Make(sequences, fraction);
      std::vector<int> seen(sequences);
      for (int64_t i = 0; i < split.train_sequences(); ++i) ++seen[split.Train(i)];
      for (int64_t i = 0; i < split.eval_sequences(); ++i) ++seen[split.Eval(i)];
      EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), sequences) << sequences << " " << fraction;
      EXPECT_EQ(split.train_sequences() + split.eval_sequences(), sequences);
      EXPECT_GE(split.train_sequences(), 1);
      EXPECT_EQ(split.eval_sequences() > 0, fraction > 0);
    }
  }
}

TEST(Split, TrainKeepsTheOrderOfTheStream) {
  const Split split = Split::Make(1000, 0.13);
  for (int64_t i = 1; i < split.train_sequences(); ++i) {
    EXPECT_LT(split.Train(i - 1), split.Train(i));
  }
}

TEST(Split, KeepsTheShareThatWasAskedForSpreadOverTheStream) {
  const Split split = Split::Make(1000, 0.02);
  ASSERT_EQ(split.eval_sequences(), 20);
  for (int64_t k = 0; k < 20; ++k) EXPECT_EQ(split.Eval(k), 50 * k + 25);
}

TEST(Split, KeepsAtLeastOneForEvaluationAndOneForTraining) {
  EXPECT_EQ(Split::Make(10, 0.001).eval_sequences(), 1);
  EXPECT_EQ(Split::Make(2, 0.5).train_sequences(), 1);
  EXPECT_EQ(Split::Make(1, 0.5).train_sequences(), 1);
}

}  // namespace
}  // namespace millrace
