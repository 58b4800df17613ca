#include <tuple>

#include "gtest/gtest.h"
#include "tests/engine/ops/op_test_util.h"

namespace millrace {
namespace {

class AddTest : public testing::TestWithParam<std::tuple<DType, int, int64_t>> {};

TEST_P(AddTest, AddsElementByElement) {
  const auto [type, threads, count] = GetParam();
  const Tensor x(type, RandomDoubles(count, 1));
  Tensor y(type, RandomDoubles(count, 2));
  Doubles want = y.values();
  const Doubles added = x.values();
  for (int64_t i = 0; i < count; ++i) want[i] += added[i];
  Rig rig(type, threads, {});
  ASSERT_TRUE(rig.Run(Add{.count = count, .x = x.data(), .y = y.data()}).ok());
  ExpectClose(y.values(), want, RoundingOf(type, 0), "y");
}

INSTANTIATE_TEST_SUITE_P(Counts, AddTest,
                         testing::Combine(testing::ValuesIn(ComputeTypes()),
                                          testing::Values(1, 2, 3),
                                          testing::Values(1, 17, 1024, 9001)));

}  // namespace
}  // namespace millrace
