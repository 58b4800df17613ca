#include <cctype>
#include <cmath>
#include <string>
#include <tuple>

#include "gtest/gtest.h"
#include "tests/engine/ops/op_test_util.h"

namespace millrace {
namespace {

constexpr double kEpsilon = 1e-5;

struct Reference {
  Doubles y, mean, rstd, dx, dweight, dbias;
};

// dy may be empty: forward alone.
Reference Normalize(bool layer_norm, int64_t tokens, int64_t width, const Doubles& x,
                    const Doubles& weight, const Doubles& bias, const Doubles& dy) {
  Reference r{Doubles(tokens * width), Doubles(tokens), Doubles(tokens),
              Doubles(tokens * width), Doubles(width),  Doubles(width)};
  for (int64_t t = 0; t < tokens; ++t) {
    const double* row = &x[t * width];
    double mean = 0, square = 0;
    for (int64_t i = 0; layer_norm && i < width; ++i) mean += row[i] / width;
    for (int64_t i = 0; i < width; ++i) square += (row[i] - mean) * (row[i] - mean) / width;
    const double rstd = 1 / std::sqrt(square + kEpsilon);
    r.mean[t] = mean;
    r.rstd[t] = rstd;
    double g_mean = 0, gx_mean = 0;
    for (int64_t i = 0; i < width; ++i) {
      const double normalized = (row[i] - mean) * rstd;
      r.y[t * width + i] = normalized * weight[i] + (bias.empty() ? 0 : bias[i]);
      if (dy.empty()) continue;
      const double g = dy[t * width + i] * weight[i];
      g_mean += layer_norm ? g / width : 0;
      gx_mean += g * normalized / width;
      r.dweight[i] += dy[t * width + i] * normalized;
      r.dbias[i] += dy[t * width + i];
    }
    for (int64_t i = 0; !dy.empty() && i < width; ++i) {
      const double normalized = (row[i] - mean) * rstd;
      r.dx[t * width + i] = rstd * (dy[t * width + i] * weight[i] - g_mean - normalized * gx_mean);
    }
  }
  return r;
}

struct Sizes {
  int64_t tokens, width;
};

class NormTest : public testing::TestWithParam<std::tuple<DType, int, bool, Sizes>> {};

TEST_P(NormTest, MatchesReferenceForwardAndBackward) {
  const auto [type, threads, layer_norm, sizes] = GetParam();
  const auto [tokens, width] = sizes;
  const Tensor x(type, RandomDoubles(tokens * width, 1, 2, 0.5));
  const Tensor weight(type, RandomDoubles(width, 2, 0.5, 1));
  const Tensor bias(type, RandomDoubles(width, 3));
  const Tensor dy(type, RandomDoubles(tokens * width, 4));
  const Tensor residual(type, RandomDoubles(tokens * width, 5));
  const Reference want = Normalize(layer_norm, tokens, width, x.values(), weight.values(),
                                   layer_norm ? bias.values() : Doubles(), dy.values());

  Rig rig(type, threads, {.tokens = tokens, .hidden = width});
  Tensor y(type, tokens * width), mean(DType::kF32, tokens), rstd(DType::kF32, tokens);
  NormForward forward{.layer_norm = layer_norm,
                      .tokens = tokens,
                      .width = width,
                      .epsilon = kEpsilon,
                      .x = x.data(),
                      .weight = weight.data(),
                      .bias = layer_norm ? bias.data() : nullptr,
                      .y = y.data(),
                      .mean = layer_norm ? mean.as<float>() : nullptr,
                      .rstd = rstd.as<float>()};
  ASSERT_TRUE(rig.Run(forward).ok());
  const Tolerance f32 = RoundingOf(DType::kF32, 8);
  const Tolerance tolerance = RoundingOf(type, type == DType::kBF16 ? 0.1 : 8);
  ExpectClose(y.values(), want.y, tolerance, "y");
  ExpectClose(rstd.values(), want.rstd, f32, "rstd");
  if (layer_norm) ExpectClose(mean.values(), want.mean, f32, "mean");
  Tensor statistics(DType::kF32, tokens);
  forward.y = nullptr;
  forward.rstd = statistics.as<float>();
  ASSERT_TRUE(rig.Run(forward).ok());
  EXPECT_EQ(statistics.bytes(), rstd.bytes());

  Tensor dx(type, tokens * width), dweight(type, width), dbias(type, width);
  NormBackward op{.layer_norm = layer_norm,
                  .tokens = tokens,
                  .width = width,
                  .dy = dy.data(),
                  .x = x.data(),
                  .weight = weight.data(),
                  .mean = mean.as<float>(),
                  .rstd = rstd.as<float>(),
                  .dx = dx.data(),
                  .dweight = {dweight.data(), type, false},
                  .dbias = {dbias.data(), type, false}};
  ASSERT_TRUE(rig.Run(op).ok());
  ExpectClose(dx.values(), want.dx, tolerance, "dx");
  ExpectClose(dweight.values(), want.dweight, RoundingOf(type, type == DType::kBF16 ? 0.1 : 32),
              "dweight");
  ExpectClose(dbias.values(), want.dbias, RoundingOf(type, type == DType::kBF16 ? 0.1 : 32),
              "dbias");

  // Again, added to f32 gradients, and to the residual in place.
  const Doubles old = RandomDoubles(width, 6);
  Tensor dweight_sum(DType::kF32, old), in_place(type, residual.values());
  op.residual = in_place.data();
  op.dx = in_place.data();
  op.dweight = {dweight_sum.data(), DType::kF32, true};
  op.dbias = {};
  ASSERT_TRUE(rig.Run(op).ok());
  Doubles want_dweight = want.dweight, want_dx = want.dx;
  const Doubles residual_values = residual.values();
  for (int64_t i = 0; i < width; ++i) want_dweight[i] += old[i];
  for (int64_t i = 0; i < tokens * width; ++i) want_dx[i] += residual_values[i];
  ExpectClose(dweight_sum.values(), want_dweight, RoundingOf(DType::kF32, 32), "added dweight");
  ExpectClose(in_place.values(), want_dx, tolerance, "dx with residual");

  Tensor again(type, residual.values(), 192);
  op.residual = again.data();
  op.dx = again.data();
  op.dweight = {};
  ASSERT_TRUE(rig.Run(op).ok());
  EXPECT_EQ(again.bytes(), in_place.bytes());
}

INSTANTIATE_TEST_SUITE_P(
    Sizes, NormTest,
    testing::Combine(testing::ValuesIn(ComputeTypes()), testing::Values(1, 2, 3), testing::Bool(),
                     testing::Values(Sizes{1, 8}, Sizes{3, 17}, Sizes{17, 80}, Sizes{130, 768})));

// A norm of segments of fused rows, as families have them.
struct Variant {
  const char* name;
  bool layer_norm, plus_one, with_residual;
  int64_t tokens, width, groups, padding;  // elements of other matrices after each row
};

// Segments of padded rows, one after the other.
Doubles SegmentsOf(const Doubles& rows, const Variant& v) {
  const int64_t row = v.groups * v.width;
  Doubles segments(v.tokens * row);
  for (int64_t i = 0; i < v.tokens * row; ++i) {
    segments[i] = rows[i / row * (row + v.padding) + i % row];
  }
  return segments;
}

// `rows` with other segments.
Doubles WithSegments(Doubles rows, const Doubles& segments, const Variant& v) {
  const int64_t row = v.groups * v.width;
  for (int64_t i = 0; i < v.tokens * row; ++i) {
    rows[i / row * (row + v.padding) + i % row] = segments[i];
  }
  return rows;
}

class NormVariantTest : public testing::TestWithParam<std::tuple<DType, int, Variant>> {};

TEST_P(NormVariantTest, NormalizesSegmentsOfRowsInPlace) {
  const auto [type, threads, v] = GetParam();
  const int64_t segments = v.tokens * v.groups, stride = v.groups * v.width + v.padding;
  const Tensor x(type, RandomDoubles(v.tokens * stride, 1, 2, 0.5));
  const Tensor weight(type, RandomDoubles(v.width, 2, 0.5, v.plus_one ? 0 : 1));
  const Tensor bias(type, RandomDoubles(v.width, 3));
  const Tensor dy(type, RandomDoubles(v.tokens * stride, 4));
  const Tensor residual(type, RandomDoubles(segments * v.width, 5));
  Doubles factors = weight.values();
  for (double& factor : factors) factor += v.plus_one ? 1 : 0;
  const Reference want =
      Normalize(v.layer_norm, segments, v.width, SegmentsOf(x.values(), v), factors,
                v.layer_norm ? bias.values() : Doubles(), SegmentsOf(dy.values(), v));
  Doubles want_y = want.y, want_dx = want.dx;
  const Doubles residual_values = residual.values();
  for (size_t i = 0; v.with_residual && i < want_y.size(); ++i) {
    want_y[i] += residual_values[i];
    want_dx[i] += residual_values[i];
  }

  // The limits of a model whose hidden size is less than its projection of queries.
  Rig rig(type, threads, {.tokens = v.tokens, .hidden = 8, .query = v.groups * v.width});
  const Tolerance tolerance = RoundingOf(type, type == DType::kBF16 ? 0.1 : 16);
  const Tolerance sums = RoundingOf(DType::kF32, 64);
  Tensor y(type, x.values()), mean(DType::kF32, segments), rstd(DType::kF32, segments);
  NormForward forward{.layer_norm = v.layer_norm,
                      .plus_one = v.plus_one,
                      .tokens = v.tokens,
                      .width = v.width,
                      .groups = v.groups,
                      .epsilon = kEpsilon,
                      .x = y.data(),
                      .x_stride = stride,
                      .weight = weight.data(),
                      .bias = v.layer_norm ? bias.data() : nullptr,
                      .residual = v.with_residual ? residual.data() : nullptr,
                      .y = y.data(),
                      .y_stride = stride,
                      .mean = v.layer_norm ? mean.as<float>() : nullptr,
                      .rstd = rstd.as<float>()};
  ASSERT_TRUE(rig.Run(forward).ok());
  ExpectClose(SegmentsOf(y.values(), v), want_y, tolerance, "y");
  ExpectClose(rstd.values(), want.rstd, RoundingOf(DType::kF32, 8), "rstd");
  EXPECT_EQ(WithSegments(y.values(), SegmentsOf(x.values(), v), v), x.values()) << "beside y";

  // Apart, without strides, and where there is a residual in its place: the same.
  Tensor dense(type, residual.values(), 192);
  forward.x = x.data();
  forward.residual = v.with_residual ? dense.data() : nullptr;
  forward.y = dense.data();
  forward.y_stride = 0;
  ASSERT_TRUE(rig.Run(forward).ok());
  EXPECT_EQ(dense.values(), SegmentsOf(y.values(), v));

  Tensor dx(type, dy.values()), dweight(DType::kF32, v.width), dbias(DType::kF32, v.width);
  NormBackward backward{.layer_norm = v.layer_norm,
                        .plus_one = v.plus_one,
                        .tokens = v.tokens,
                        .width = v.width,
                        .groups = v.groups,
                        .dy = dx.data(),
                        .dy_stride = stride,
                        .x = x.data(),
                        .x_stride = stride,
                        .weight = weight.data(),
                        .mean = v.layer_norm ? mean.as<float>() : nullptr,
                        .rstd = rstd.as<float>(),
                        .residual = v.with_residual ? residual.data() : nullptr,
                        .dx = dx.data(),
                        .dx_stride = stride,
                        .dweight = {dweight.data(), DType::kF32, false},
                        .dbias = {dbias.data(), DType::kF32, false}};
  ASSERT_TRUE(rig.Run(backward).ok());
  ExpectClose(SegmentsOf(dx.values(), v), want_dx, tolerance, "dx");
  ExpectClose(dweight.values(), want.dweight, sums, "dweight");
  ExpectClose(dbias.values(), want.dbias, sums, "dbias");
  EXPECT_EQ(WithSegments(dx.values(), SegmentsOf(dy.values(), v), v), dy.values()) << "beside dx";

  Tensor dense_dx(type, residual.values(), 192);
  backward.dy = dy.data();
  backward.residual = v.with_residual ? dense_dx.data() : nullptr;
  backward.dx = dense_dx.data();
  backward.dx_stride = 0;
  ASSERT_TRUE(rig.Run(backward).ok());
  EXPECT_EQ(dense_dx.values(), SegmentsOf(dx.values(), v));
}

INSTANTIATE_TEST_SUITE_P(
    Variants, NormVariantTest,
    testing::Combine(testing::ValuesIn(ComputeTypes()), testing::Values(1, 2, 3),
                     testing::Values(Variant{"gemma", false, true, false, 17, 80, 1, 0},
                                     Variant{"post norm", false, false, true, 17, 80, 1, 0},
                                     Variant{"gemma's post norm", false, true, true, 5, 77, 1, 0},
                                     Variant{"heads", false, false, false, 9, 64, 4, 128},
                                     Variant{"small heads", false, true, false, 5, 12, 3, 24},
                                     Variant{"large heads", false, true, false, 2, 256, 5, 512},
                                     Variant{"whole projection", false, false, false, 9, 96, 1, 48},
                                     Variant{"all of it", true, true, true, 7, 33, 3, 5})),
    [](const auto& info) {
      std::string name = std::get<2>(info.param).name;
      std::erase_if(name, [](char c) { return !std::isalpha(static_cast<unsigned char>(c)); });
      return name + (std::get<0>(info.param) == DType::kBF16 ? "Bf16On" : "F32On") +
             std::to_string(std::get<1>(info.param));
    });

TEST(NormReferenceTest, GradientIsThatOfFiniteDifferences) {
  const int64_t tokens = 2, width = 5;
  const Doubles x = RandomDoubles(10, 1), weight = RandomDoubles(5, 2), dy = RandomDoubles(10, 3);
  for (const bool layer_norm : {false, true}) {
    const Reference r = Normalize(layer_norm, tokens, width, x, weight, {}, dy);
    const auto loss = [&](const Doubles& x, const Doubles& weight) {
      return Dot(Normalize(layer_norm, tokens, width, x, weight, {}, {}).y, dy);
    };
    ExpectClose(r.dx, FiniteDifferences(x, [&](const Doubles& v) { return loss(v, weight); }),
                {1e-6, 1e-7}, "dx");
    ExpectClose(r.dweight, FiniteDifferences(weight, [&](const Doubles& v) { return loss(x, v); }),
                {1e-6, 1e-7}, "dweight");
  }
}

}  // namespace
}  // namespace millrace
