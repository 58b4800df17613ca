#include "engine/data/permutation.h"

#include <cstdint>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace millrace {
namespace {

std::vector<uint64_t> Order(uint64_t size, uint64_t seed, uint64_t epoch) {
  const Permutation permutation(size, seed, epoch);
  std::vector<uint64_t> order(size);
  for (uint64_t i = 0; i < size; ++i) order[i] = permutation(i);
  return order;
}

TEST(Permutation, GivesEachElementOnce) {
  for (uint64_t size : {1, 2, 3, 4, 5, 7, 16, 17, 63, 64, 65, 255, 256, 257, 1000, 4096, 65537}) {
    for (uint64_t seed = 0; seed < 3; ++seed) {
      std::vector<bool> seen(size, false);
      for (uint64_t value : Order(size, seed, seed + 1)) {
        ASSERT_LT(value, size);
        EXPECT_FALSE(seen[value]);
        seen[value] = true;
      }
    }
  }
}

TEST(Permutation, DiffersByEpochAndSeed) {
  EXPECT_EQ(Order(100, 1, 2), Order(100, 1, 2));
  EXPECT_NE(Order(100, 1, 2), Order(100, 1, 3));
  EXPECT_NE(Order(100, 1, 2), Order(100, 2, 2));
}

TEST(Permutation, ReachesAllOrdersOfAFewElementsAboutEqually) {
  std::set<std::vector<uint64_t>> orders;
  constexpr int kEpochs = 4800;
  std::vector<int> first(4);
  for (uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
    const std::vector<uint64_t> order = Order(4, 9, epoch);
    orders.insert(order);
    ++first[order[0]];
  }
  EXPECT_EQ(orders.size(), 24);
  for (int count : first) EXPECT_NEAR(count, kEpochs / 4.0, 150);  // five deviations
}

TEST(Permutation, NeighboursDoNotStayNeighbours) {
  const std::vector<uint64_t> order = Order(10000, 3, 0);
  int neighbours = 0;
  for (size_t i = 1; i < order.size(); ++i) neighbours += order[i] == order[i - 1] + 1;
  EXPECT_LE(neighbours, 10);  // 1 is expected
}

TEST(Permutation, WorksOnSizesBeyondMemory) {
  const uint64_t size = (uint64_t{1} << 40) + 12345;
  const Permutation permutation(size, 1, 1);
  std::set<uint64_t> values;
  for (uint64_t i = 0; i < 1000; ++i) {
    values.insert(permutation(size - 1 - i * 1'000'003));
    EXPECT_LT(*values.rbegin(), size);
  }
  EXPECT_EQ(values.size(), 1000);
}

}  // namespace
}  // namespace millrace
