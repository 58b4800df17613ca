#include <cmath>
#include <tuple>
#include <vector>

#include "engine/ops/rotary_table.h"
#include "gtest/gtest.h"
#include "tests/engine/ops/op_test_util.h"

namespace millrace {
namespace {

struct Sizes {
  int64_t head_dim, width;
};

class RotaryTest : public testing::TestWithParam<std::tuple<DType, int, Sizes>> {};

TEST_P(RotaryTest, TurnsPairsAndBack) {
  const auto [type, threads, sizes] = GetParam();
  const auto [head_dim, width] = sizes;
  const int64_t tokens = 17, heads = 4, kv_heads = 2, max_positions = 40;
  const int64_t row = (heads + 2 * kv_heads) * head_dim;
  std::vector<float> table(max_positions * width);
  FillRotaryTable({}, width, max_positions, max_positions, table.data());
  std::vector<int32_t> positions(tokens);
  for (int64_t t = 0; t < tokens; ++t) positions[t] = static_cast<int32_t>(t * 7 % max_positions);
  Tensor qkv(type, RandomDoubles(tokens * row, 1));
  const Doubles before = qkv.values();
  Doubles want = before;
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t head = 0; head < heads + kv_heads; ++head) {
      for (int64_t i = 0; i < width / 2; ++i) {
        const double angle = positions[t] * std::pow(10000, -2.0 * i / width);
        const int64_t at = t * row + head * head_dim + i;
        const double a = before[at], b = before[at + width / 2];
        want[at] = a * std::cos(angle) - b * std::sin(angle);
        want[at + width / 2] = b * std::cos(angle) + a * std::sin(angle);
      }
    }
  }
  Rig rig(type, threads, {});
  Rotary op{.tokens = tokens,
            .heads = heads + kv_heads,
            .head_dim = head_dim,
            .rotary_width = width,
            .row_stride = row,
            .positions = positions.data(),
            .cos_sin_table = table.data(),
            .x = qkv.data()};
  ASSERT_TRUE(rig.Run(op).ok());
  ExpectClose(qkv.values(), want, RoundingOf(type, 2), "turned");
  const Doubles turned = qkv.values();
  for (size_t i = 0; i < turned.size(); ++i) {
    if (static_cast<int64_t>(i) % head_dim < width) continue;
    ASSERT_EQ(turned[i], before[i]) << "moved";
  }
  op.backward = true;
  ASSERT_TRUE(rig.Run(op).ok());
  ExpectClose(qkv.values(), before, RoundingOf(type, 4), "turned back");
}

// Heads whose elements all turn, and those of which the first do.
INSTANTIATE_TEST_SUITE_P(HeadDims, RotaryTest,
                         testing::Combine(testing::ValuesIn(ComputeTypes()),
                                          testing::Values(1, 2, 3),
                                          testing::Values(Sizes{2, 2}, Sizes{8, 8}, Sizes{64, 64},
                                                          Sizes{80, 80}, Sizes{128, 128},
                                                          Sizes{8, 2}, Sizes{80, 20}, Sizes{96, 72},
                                                          Sizes{128, 64})));

}  // namespace
}  // namespace millrace
