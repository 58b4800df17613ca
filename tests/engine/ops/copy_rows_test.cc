#include <tuple>

#include "gtest/gtest.h"
#include "tests/engine/ops/op_test_util.h"

namespace millrace {
namespace {

struct Sizes {
  int64_t rows, width, source_stride, target_stride;
};

class CopyRowsTest : public testing::TestWithParam<std::tuple<DType, int, Sizes>> {};

TEST_P(CopyRowsTest, CopiesRowsAndNothingBesideThem) {
  const auto [type, threads, s] = GetParam();
  const Tensor source(type, RandomDoubles(s.rows * s.source_stride, 1));
  Tensor target(type, RandomDoubles(s.rows * s.target_stride, 2));
  Doubles want = target.values();
  const Doubles from = source.values();
  for (int64_t i = 0; i < s.rows * s.width; ++i) {
    want[i / s.width * s.target_stride + i % s.width] =
        from[i / s.width * s.source_stride + i % s.width];
  }
  Rig rig(type, threads, {});
  ASSERT_TRUE(rig.Run(CopyRows{.rows = s.rows,
                               .width = s.width,
                               .source = source.data(),
                               .source_stride = s.source_stride,
                               .target = target.data(),
                               .target_stride = s.target_stride})
                  .ok());
  EXPECT_EQ(target.values(), want);
}

INSTANTIATE_TEST_SUITE_P(
    Sizes, CopyRowsTest,
    testing::Combine(testing::ValuesIn(ComputeTypes()), testing::Values(1, 2, 3),
                     testing::Values(Sizes{1, 64, 64, 64}, Sizes{3, 17, 40, 21},
                                     Sizes{4, 20000, 20001, 20000}, Sizes{300, 128, 640, 128})));

}  // namespace
}  // namespace millrace
