#include "engine/ops/gradient.h"

#include <cmath>

#include "gtest/gtest.h"
#include "tests/engine/ops/op_test_util.h"

namespace millrace {
namespace {

TEST(SumOfSquaresTest, IsExactEnoughAndTheSameForAnyNumberOfThreads) {
  for (const DType type : {DType::kF32, DType::kBF16}) {
    for (const int64_t count : {0, 1, 17, 4096, 300001}) {
      const Tensor data(type, RandomDoubles(count, 1));
      const Doubles values = data.values();
      const double want = Dot(values, values);
      ThreadPool one(1);
      const double first = SumOfSquares(one, data.data(), type, count);
      EXPECT_NEAR(first, want, 1e-6 * want);
      for (const int threads : {2, 3}) {
        ThreadPool pool(threads);
        EXPECT_EQ(SumOfSquares(pool, data.data(), type, count), first);
      }
    }
  }
}

TEST(SumOfSquaresTest, ShowsNanAndInfinity) {
  ThreadPool pool(2);
  Doubles values(5000);
  values[4999] = NAN;
  EXPECT_TRUE(
      std::isnan(SumOfSquares(pool, Tensor(DType::kBF16, values).data(), DType::kBF16, 5000)));
  values[4999] = HUGE_VAL;
  EXPECT_TRUE(
      std::isinf(SumOfSquares(pool, Tensor(DType::kF32, values).data(), DType::kF32, 5000)));
}

TEST(ConvertGradientTest, RoundsToNearestEven) {
  Rig rig(DType::kF32, 2, {});
  Doubles values = RandomDoubles(10001, 1);
  values[0] = NAN;
  const Tensor source(DType::kF32, values), want(DType::kBF16, values);
  Tensor target(DType::kBF16, 10001), same(DType::kF32, 10001);
  ASSERT_TRUE(rig.Run(ConvertGradient{.count = 10001,
                                      .source = reinterpret_cast<const float*>(source.data()),
                                      .target = target.data(),
                                      .target_dtype = DType::kBF16})
                  .ok());
  EXPECT_EQ(target.bytes(), want.bytes());
  ASSERT_TRUE(rig.Run(ConvertGradient{.count = 10001,
                                      .source = reinterpret_cast<const float*>(source.data()),
                                      .target = same.data(),
                                      .target_dtype = DType::kF32})
                  .ok());
  EXPECT_EQ(same.bytes(), source.bytes());
}

}  // namespace
}  // namespace millrace
