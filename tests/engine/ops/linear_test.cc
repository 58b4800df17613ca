#include <string>
#include <tuple>

#include "gtest/gtest.h"
#include "tests/engine/ops/op_test_util.h"

namespace millrace {
namespace {

struct Sizes {
  int64_t tokens, in, out;
};

// Σ_k op(a)[i, k] · op(b)[k, j]
Doubles Multiply(const Doubles& a, bool a_transposed, const Doubles& b, bool b_transposed,
                 int64_t m, int64_t n, int64_t k) {
  Doubles c(m * n);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t p = 0; p < k; ++p) {
      const double x = a_transposed ? a[p * m + i] : a[i * k + p];
      for (int64_t j = 0; j < n; ++j)
        c[i * n + j] += x * (b_transposed ? b[j * k + p] : b[p * n + j]);
    }
  }
  return c;
}

class LinearTest : public testing::TestWithParam<std::tuple<DType, int, Sizes>> {
 protected:
  DType type() const { return std::get<0>(GetParam()); }
  int threads() const { return std::get<1>(GetParam()); }
  Sizes sizes() const { return std::get<2>(GetParam()); }
  // f32 sums of k products; the terms' roundings mostly cancel.
  double inner() const { return type() == DType::kBF16 ? 0.5 : 8; }
};

TEST_P(LinearTest, ForwardIsProductPlusBiasPlusResidual) {
  const auto [tokens, in, out] = sizes();
  Rig rig(type(), threads(), {.tokens = tokens, .hidden = in});
  const Tensor x(type(), RandomDoubles(tokens * in, 1));
  const Tensor weight(type(), RandomDoubles(out * in, 2));
  const Tensor bias(type(), RandomDoubles(out, 3));
  const Tensor residual(type(), RandomDoubles(tokens * out, 4));
  const Doubles product = Multiply(x.values(), false, weight.values(), true, tokens, out, in);

  const Doubles bias_values = bias.values(), residual_values = residual.values();
  for (const bool with_bias : {false, true}) {
    for (const bool with_residual : {false, true}) {
      Tensor y(type(), tokens * out);
      ASSERT_TRUE(rig.Run(LinearForward{.tokens = tokens,
                                        .in = in,
                                        .out = out,
                                        .x = x.data(),
                                        .weight = weight.data(),
                                        .bias = with_bias ? bias.data() : nullptr,
                                        .residual = with_residual ? residual.data() : nullptr,
                                        .y = y.data(),
                                        .y_dtype = type()})
                      .ok());
      Doubles want = product;
      for (int64_t i = 0; i < tokens * out; ++i) {
        if (with_bias) want[i] += bias_values[i % out];
        if (with_residual) want[i] += residual_values[i];
      }
      ExpectClose(y.values(), want, RoundingOf(type(), inner()), "y");
    }
  }

  Tensor in_place(type(), residual.values());
  Tensor y(type(), tokens * out);
  LinearForward op{.tokens = tokens,
                   .in = in,
                   .out = out,
                   .x = x.data(),
                   .weight = weight.data(),
                   .residual = residual.data(),
                   .y = y.data(),
                   .y_dtype = type()};
  ASSERT_TRUE(rig.Run(op).ok());
  op.residual = in_place.data();
  op.y = in_place.data();
  ASSERT_TRUE(rig.Run(op).ok());
  EXPECT_EQ(in_place.bytes(), y.bytes());

  Tensor f32(DType::kF32, tokens * out);
  ASSERT_TRUE(rig.Run(LinearForward{.tokens = tokens,
                                    .in = in,
                                    .out = out,
                                    .x = x.data(),
                                    .weight = weight.data(),
                                    .y = f32.data(),
                                    .y_dtype = DType::kF32})
                  .ok());
  ExpectClose(f32.values(), product, RoundingOf(DType::kF32, 32), "f32 y");
}

TEST_P(LinearTest, BackwardMatchesReference) {
  const auto [tokens, in, out] = sizes();
  Rig rig(type(), threads(), {.tokens = tokens, .hidden = in});
  const Tensor x(type(), RandomDoubles(tokens * in, 1));
  const Tensor dy(type(), RandomDoubles(tokens * out, 2));
  const Tensor weight(type(), RandomDoubles(out * in, 3));
  Tensor dx(type(), tokens * in), dweight(type(), out * in), dbias(type(), out);
  const Doubles old_dweight = RandomDoubles(out * in, 5), old_dbias = RandomDoubles(out, 6);
  Tensor dweight_sum(DType::kF32, old_dweight), dbias_sum(DType::kF32, old_dbias);
  LinearBackward op{.tokens = tokens,
                    .in = in,
                    .out = out,
                    .dy = dy.data(),
                    .x = x.data(),
                    .weight = weight.data(),
                    .dx = dx.data(),
                    .dweight = {dweight.data(), type(), false},
                    .dbias = {dbias.data(), type(), false}};
  ASSERT_TRUE(rig.Run(op).ok());
  op.dx = nullptr;
  op.dweight = {dweight_sum.data(), DType::kF32, true};
  op.dbias = {dbias_sum.data(), DType::kF32, true};
  ASSERT_TRUE(rig.Run(op).ok());

  Doubles want_dweight = Multiply(dy.values(), true, x.values(), false, out, in, tokens);
  Doubles want_dbias(out);
  const Doubles dy_values = dy.values();
  for (int64_t i = 0; i < tokens * out; ++i) want_dbias[i % out] += dy_values[i];
  const Tolerance tolerance = RoundingOf(type(), inner());
  ExpectClose(dx.values(), Multiply(dy.values(), false, weight.values(), false, tokens, in, out),
              tolerance, "dx");
  ExpectClose(dweight.values(), want_dweight, tolerance, "dweight");
  ExpectClose(dbias.values(), want_dbias, tolerance, "dbias");
  for (int64_t i = 0; i < out * in; ++i) want_dweight[i] += old_dweight[i];
  for (int64_t i = 0; i < out; ++i) want_dbias[i] += old_dbias[i];
  ExpectClose(dweight_sum.values(), want_dweight, RoundingOf(DType::kF32, 32), "added dweight");
  ExpectClose(dbias_sum.values(), want_dbias, RoundingOf(DType::kF32, 32), "added dbias");
}

// The same bits again, and wherever the operands lie.
TEST_P(LinearTest, ResultsDependOnNeitherAddressNorTiming) {
  const auto [tokens, in, out] = sizes();
  Rig rig(type(), threads(), {.tokens = tokens, .hidden = in});
  std::string first;
  for (const size_t offset : {0, 64, 192, 320, 0}) {
    const Tensor x(type(), RandomDoubles(tokens * in, 1), offset);
    const Tensor dy(type(), RandomDoubles(tokens * out, 2), 2 * offset);
    const Tensor weight(type(), RandomDoubles(out * in, 3), offset * 3);
    Tensor y(type(), tokens * out, offset), dx(type(), tokens * in, offset);
    Tensor dweight(type(), out * in, offset), dbias(type(), out, offset);
    Tensor dweight_sum(DType::kF32, RandomDoubles(out * in, 4), offset);
    ASSERT_TRUE(rig.Run(LinearForward{.tokens = tokens,
                                      .in = in,
                                      .out = out,
                                      .x = x.data(),
                                      .weight = weight.data(),
                                      .y = y.data(),
                                      .y_dtype = type()})
                    .ok());
    LinearBackward op{.tokens = tokens,
                      .in = in,
                      .out = out,
                      .dy = dy.data(),
                      .x = x.data(),
                      .weight = weight.data(),
                      .dx = dx.data(),
                      .dweight = {dweight.data(), type(), false},
                      .dbias = {dbias.data(), type(), false}};
    ASSERT_TRUE(rig.Run(op).ok());
    op.dweight = {dweight_sum.data(), DType::kF32, true};
    ASSERT_TRUE(rig.Run(op).ok());
    const std::string all =
        y.bytes() + dx.bytes() + dweight.bytes() + dbias.bytes() + dweight_sum.bytes();
    if (first.empty()) first = all;
    EXPECT_EQ(all == first, true) << "at offset " << offset;
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, LinearTest,
                         testing::Combine(testing::ValuesIn(ComputeTypes()),
                                          testing::Values(1, 2, 3),
                                          testing::Values(Sizes{1, 8, 8}, Sizes{3, 17, 5},
                                                          Sizes{17, 64, 96}, Sizes{130, 80, 257},
                                                          Sizes{64, 192, 320},
                                                          Sizes{256, 128, 384})));

TEST(LinearBackwardTest, RefusesToAddToBf16) {
  Rig rig(DType::kF32, 1, {});
  Tensor x(DType::kF32, Doubles(4)), dweight(DType::kBF16, Doubles(4));
  const absl::Status status =
      rig.Run(LinearBackward{.tokens = 2,
                             .in = 2,
                             .out = 2,
                             .dy = x.data(),
                             .x = x.data(),
                             .weight = x.data(),
                             .dweight = {dweight.data(), DType::kBF16, true}});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
}

TEST(LinearBackwardTest, NoTokensGiveZeroGradients) {
  Rig rig(DType::kF32, 2, {});
  Tensor weight(DType::kF32, Doubles(6)), dweight(DType::kF32, 6), dbias(DType::kF32, 2);
  ASSERT_TRUE(rig.Run(LinearBackward{.tokens = 0,
                                     .in = 3,
                                     .out = 2,
                                     .dy = nullptr,
                                     .x = nullptr,
                                     .weight = weight.data(),
                                     .dweight = {dweight.data(), DType::kF32, false},
                                     .dbias = {dbias.data(), DType::kF32, false}})
                  .ok());
  EXPECT_EQ(dweight.values(), Doubles(6));
  EXPECT_EQ(dbias.values(), Doubles(2));
}

}  // namespace
}  // namespace millrace
