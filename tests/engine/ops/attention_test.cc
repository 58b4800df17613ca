#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/engine/ops/op_test_util.h"

namespace millrace {
namespace {

struct Case {
  std::string name;
  int64_t num_heads, num_kv_heads, head_dim;
  std::vector<int32_t> boundaries;
  double magnitude = 1;  // of the elements of q, k and v
  int64_t window = 0;
  double softcap = 0;

  int64_t tokens() const { return boundaries.back(); }
  int64_t row() const { return (num_heads + 2 * num_kv_heads) * head_dim; }
  int64_t output_row() const { return num_heads * head_dim; }
  double scale() const { return 1 / std::sqrt(static_cast<double>(head_dim)); }
};

struct Reference {
  Doubles output, log_sum_exp, dqkv;
};

// Attention and, where `doutput` is not empty, its gradient, score by score.
Reference Attend(const Case& c, const Doubles& qkv, const Doubles& doutput) {
  Reference r{Doubles(c.tokens() * c.output_row()), Doubles(c.num_heads * c.tokens()),
              Doubles(qkv.size())};
  const int64_t d = c.head_dim;
  for (int64_t head = 0; head < c.num_heads; ++head) {
    const int64_t kv = head / (c.num_heads / c.num_kv_heads);
    const int64_t q_column = head * d, k_column = (c.num_heads + kv) * d;
    const int64_t v_column = (c.num_heads + c.num_kv_heads + kv) * d;
    for (size_t document = 0; document + 1 < c.boundaries.size(); ++document) {
      const int64_t begin = c.boundaries[document];
      for (int64_t i = begin; i < c.boundaries[document + 1]; ++i) {
        const double* q = &qkv[i * c.row() + q_column];
        const int64_t first = c.window > 0 ? std::max(begin, i + 1 - c.window) : begin;
        Doubles p(i - first + 1), slopes(i - first + 1, c.scale());  // slopes: of s by q·k
        double largest = -HUGE_VAL, sum = 0;
        for (int64_t j = first; j <= i; ++j) {
          const double* k = &qkv[j * c.row() + k_column];
          double s = 0;
          for (int64_t e = 0; e < d; ++e) s += q[e] * k[e];
          p[j - first] = s * c.scale();
          if (c.softcap > 0) {
            const double ratio = std::tanh(p[j - first] / c.softcap);
            p[j - first] = c.softcap * ratio;
            slopes[j - first] *= 1 - ratio * ratio;
          }
          largest = std::max(largest, p[j - first]);
        }
        for (double& s : p) sum += s = std::exp(s - largest);
        for (double& s : p) s /= sum;
        r.log_sum_exp[head * c.tokens() + i] = largest + std::log(sum);
        double* output = &r.output[i * c.output_row() + q_column];
        for (int64_t j = first; j <= i; ++j) {
          for (int64_t e = 0; e < d; ++e)
            output[e] += p[j - first] * qkv[j * c.row() + v_column + e];
        }
        if (doutput.empty()) continue;
        const double* dout = &doutput[i * c.output_row() + q_column];
        double delta = 0;
        for (int64_t e = 0; e < d; ++e) delta += dout[e] * output[e];
        for (int64_t j = first; j <= i; ++j) {
          const double* k = &qkv[j * c.row() + k_column];
          const double* v = &qkv[j * c.row() + v_column];
          double dp = 0;
          for (int64_t e = 0; e < d; ++e) dp += dout[e] * v[e];
          const double ds = p[j - first] * (dp - delta) * slopes[j - first];
          for (int64_t e = 0; e < d; ++e) {
            r.dqkv[i * c.row() + q_column + e] += ds * k[e];
            r.dqkv[j * c.row() + k_column + e] += ds * q[e];
            r.dqkv[j * c.row() + v_column + e] += p[j - first] * dout[e];
          }
        }
      }
    }
  }
  return r;
}

struct Result {
  Doubles output, log_sum_exp, dqkv;
  std::string bytes;
};

// q, k and v of a fused matrix.
AttentionInput InputOf(const Case& c, const Tensor& qkv) {
  const auto* data = static_cast<const std::byte*>(qkv.data());
  const auto size = static_cast<int64_t>(SizeOf(qkv.type()));
  return {.tokens = c.tokens(),
          .num_heads = c.num_heads,
          .num_kv_heads = c.num_kv_heads,
          .head_dim = c.head_dim,
          .boundaries = c.boundaries,
          .scale = static_cast<float>(c.scale()),
          .softcap = static_cast<float>(c.softcap),
          .window = c.window,
          .q = data,
          .k = data + c.num_heads * c.head_dim * size,
          .v = data + (c.num_heads + c.num_kv_heads) * c.head_dim * size,
          .q_stride = c.row(),
          .k_stride = c.row(),
          .v_stride = c.row()};
}

Result RunBoth(const Case& c, DType type, int threads, const Tensor& qkv, const Tensor& doutput) {
  int64_t longest = 0;
  for (size_t i = 0; i + 1 < c.boundaries.size(); ++i) {
    longest = std::max<int64_t>(longest, c.boundaries[i + 1] - c.boundaries[i]);
  }
  Rig rig(type, threads,
          {.tokens = c.tokens(),
           .num_heads = c.num_heads,
           .num_kv_heads = c.num_kv_heads,
           .head_dim = c.head_dim,
           .longest_document = longest});
  Tensor output(type, c.tokens() * c.output_row());
  Tensor log_sum_exp(DType::kF32, c.num_heads * c.tokens());
  Tensor dqkv(type, c.tokens() * c.row());
  EXPECT_TRUE(rig.Run(AttentionForward{.input = InputOf(c, qkv),
                                       .output = output.data(),
                                       .log_sum_exp = log_sum_exp.as<float>()})
                  .ok());
  EXPECT_TRUE(rig.Run(AttentionBackward{.input = InputOf(c, qkv),
                                        .output = output.data(),
                                        .log_sum_exp = log_sum_exp.as<float>(),
                                        .doutput = doutput.data(),
                                        .dqkv = dqkv.data()})
                  .ok());
  return {output.values(), log_sum_exp.values(), dqkv.values(),
          output.bytes() + log_sum_exp.bytes() + dqkv.bytes()};
}

class AttentionTest : public testing::TestWithParam<Case> {};

TEST_P(AttentionTest, MatchesReferenceForwardAndBackward) {
  const Case& c = GetParam();
  for (const DType type : ComputeTypes()) {
    SCOPED_TRACE(NameOf(type));
    const Tensor qkv(type, RandomDoubles(c.tokens() * c.row(), 1, c.magnitude));
    const Tensor doutput(type, RandomDoubles(c.tokens() * c.output_row(), 2));
    const Reference want = Attend(c, qkv.values(), doutput.values());
    // Scores carry the error of a dot product, which the exponential turns into a relative one;
    // probabilities and their gradients are rounded once more before they are multiplied.
    const double inner = type == DType::kBF16 ? 4 : 32 + 4 * c.magnitude * c.magnitude;
    std::string one_thread;
    for (const int threads : {1, 2, 3}) {
      const Result got = RunBoth(c, type, threads, qkv, doutput);
      ExpectClose(got.output, want.output, RoundingOf(type, inner), "output");
      ExpectClose(got.log_sum_exp, want.log_sum_exp, RoundingOf(DType::kF32, 16), "log_sum_exp");
      ExpectClose(got.dqkv, want.dqkv, RoundingOf(type, inner), "dqkv");
      // A (document, head) pair is one thread's, so their number changes nothing.
      if (threads == 1) one_thread = got.bytes;
      EXPECT_TRUE(got.bytes == one_thread) << threads << " threads";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, AttentionTest,
                         testing::Values(Case{"OneToken", 1, 1, 8, {0, 1}},
                                         Case{"OddDocuments", 2, 2, 64, {0, 1, 4, 21, 151}},
                                         Case{"Grouped", 8, 2, 80, {0, 17, 130}},
                                         Case{"GroupedNarrow", 8, 2, 32, {0, 17, 130, 430}},
                                         Case{"SharedKey", 4, 1, 128, {0, 65, 66, 99}},
                                         Case{"EmptyDocument", 2, 1, 16, {0, 5, 5, 40}},
                                         Case{"LongerThanAKeyBlock", 2, 1, 64, {0, 1100}},
                                         Case{"WholeBlocks", 3, 3, 64, {0, 256, 512}},
                                         Case{"OddHead", 2, 1, 12, {0, 3, 80}},
                                         Case{"Head96", 4, 2, 96, {0, 70, 130}},
                                         Case{"Head256", 2, 1, 256, {0, 33, 120}}),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    WindowsAndSoftCaps, AttentionTest,
    testing::Values(Case{"OwnKeyAlone", 2, 1, 32, {0, 5, 70}, 1, 1},
                    Case{"NarrowWindow", 4, 2, 64, {0, 1, 40, 300}, 1, 7},
                    Case{"OddWindow", 2, 1, 64, {0, 20, 900}, 1, 101},
                    Case{"WindowOverTiles", 1, 1, 32, {0, 1300}, 1, 700},
                    Case{"WindowOfBlocks", 2, 2, 80, {0, 300}, 1, 64},
                    Case{"WindowBeyondDocuments", 2, 1, 64, {0, 20, 150}, 1, int64_t{1} << 62},
                    Case{"LowSoftCap", 4, 2, 64, {0, 17, 200}, 4, 0, 5},
                    Case{"HighSoftCap", 2, 1, 96, {0, 17, 200}, 4, 0, 50},
                    Case{"LongSoftCap", 1, 1, 64, {0, 700}, 1, 0, 5},
                    Case{"WindowAndSoftCap", 4, 2, 256, {0, 9, 200}, 2, 33, 50},
                    Case{"OddHeadWindowAndSoftCap", 4, 1, 12, {0, 9, 200}, 2, 50, 5}),
    [](const auto& info) { return info.param.name; });

class AttentionReferenceTest : public testing::TestWithParam<Case> {};

TEST_P(AttentionReferenceTest, GradientIsThatOfFiniteDifferences) {
  const Case& c = GetParam();
  const Doubles qkv = RandomDoubles(c.tokens() * c.row(), 1);
  const Doubles doutput = RandomDoubles(c.tokens() * c.output_row(), 2);
  const Doubles numeric = FiniteDifferences(
      qkv, [&](const Doubles& x) { return Dot(Attend(c, x, {}).output, doutput); });
  ExpectClose(Attend(c, qkv, doutput).dqkv, numeric, {1e-6, 1e-8}, "dqkv");
}

INSTANTIATE_TEST_SUITE_P(Cases, AttentionReferenceTest,
                         testing::Values(Case{"Plain", 4, 2, 8, {0, 1, 6}},
                                         Case{"Window", 2, 1, 8, {0, 1, 6}, 1, 3},
                                         Case{"SoftCap", 2, 1, 8, {0, 6}, 2, 0, 3},
                                         Case{"WindowAndSoftCap", 2, 2, 8, {0, 6}, 2, 2, 3}),
                         [](const auto& info) { return info.param.name; });

// The tiles that only hidden keys would fill are skipped, so what they hold is never read.
TEST(AttentionWindowTest, KeysOutsideEveryWindowAreNotRead) {
  const Case c{"", 2, 1, 64, {0, 1000}, 1, 40};
  constexpr int64_t kLate = 600;
  for (const DType type : ComputeTypes()) {
    Doubles values = RandomDoubles(c.tokens() * c.row(), 1);
    const Doubles doutput = RandomDoubles(c.tokens() * c.output_row(), 2);
    const Result whole = RunBoth(c, type, 1, Tensor(type, values), Tensor(type, doutput));
    std::fill(values.begin(), values.begin() + c.row(), NAN);
    const Result got = RunBoth(c, type, 1, Tensor(type, values), Tensor(type, doutput));
    const int64_t o = kLate * c.output_row(), g = kLate * c.row();
    EXPECT_TRUE(std::equal(got.output.begin() + o, got.output.end(), whole.output.begin() + o));
    EXPECT_TRUE(std::equal(got.dqkv.begin() + g, got.dqkv.end(), whole.dqkv.begin() + g));
  }
}

// Scores of some ten thousand would overflow an exponential that is not shifted.
TEST(AttentionExtremesTest, LargeScoresStayFinite) {
  const Case c{"", 2, 2, 64, {0, 40, 700}, 100};
  for (const DType type : ComputeTypes()) {
    const Tensor qkv(type, RandomDoubles(c.tokens() * c.row(), 1, c.magnitude));
    const Tensor doutput(type, RandomDoubles(c.tokens() * c.output_row(), 2));
    const Result got = RunBoth(c, type, 2, qkv, doutput);
    const Reference want = Attend(c, qkv.values(), {});
    ExpectClose(got.output, want.output, RoundingOf(type, type == DType::kBF16 ? 4 : 1 << 16),
                "output");
    for (const double g : got.dqkv) ASSERT_TRUE(std::isfinite(g));
  }
}

// Documents of which the last `queries[i]` tokens ask, and all keys are in a cache.
struct CachedCase {
  Case documents;
  std::vector<int32_t> queries;
};

// The op's operands: keys and values with gaps of NaN around each document, the last document
// first.
struct Cached {
  Cached(const CachedCase& c, DType type, const Tensor& qkv) : c(c), boundaries{0} {
    const Case& all = c.documents;
    const int64_t d = all.head_dim, width = all.num_kv_heads * d;
    const int64_t count = static_cast<int64_t>(c.queries.size());
    k_stride = width + 5;
    v_stride = 2 * width;
    const int64_t rows = all.tokens() + 3 * (count + 1);
    Doubles q_rows, k_rows(rows * k_stride, NAN), v_rows(rows * v_stride, NAN);
    const Doubles values = qkv.values();
    key_begin.resize(count);
    key_count.resize(count);
    int64_t row = 3;
    for (int64_t i = count - 1; i >= 0; --i) {
      key_begin[i] = row;
      key_count[i] = all.boundaries[i + 1] - all.boundaries[i];
      for (int64_t t = all.boundaries[i]; t < all.boundaries[i + 1]; ++t, ++row) {
        const auto k = values.begin() + t * all.row() + all.output_row();
        std::copy(k, k + width, k_rows.begin() + row * k_stride);
        std::copy(k + width, k + 2 * width, v_rows.begin() + row * v_stride);
      }
      row += 3;
    }
    for (int64_t i = 0; i < count; ++i) {
      boundaries.push_back(boundaries.back() + c.queries[i]);
      for (int64_t t = all.boundaries[i + 1] - c.queries[i]; t < all.boundaries[i + 1]; ++t) {
        asking.push_back(t);
        const auto q_row = values.begin() + t * all.row();
        q_rows.insert(q_rows.end(), q_row, q_row + all.output_row());
      }
    }
    q = std::make_unique<Tensor>(type, q_rows);
    k = std::make_unique<Tensor>(type, k_rows);
    v = std::make_unique<Tensor>(type, v_rows);
  }

  AttentionInput Input() const {
    AttentionInput input = InputOf(c.documents, *q);
    input.tokens = boundaries.back();
    input.boundaries = boundaries;
    input.key_begin = key_begin;
    input.key_count = key_count;
    input.k = k->data();
    input.v = v->data();
    input.q_stride = c.documents.output_row();
    input.k_stride = k_stride;
    input.v_stride = v_stride;
    return input;
  }

  const CachedCase& c;
  std::vector<int32_t> boundaries;
  std::vector<int64_t> key_begin, key_count;
  std::vector<int64_t> asking;  // tokens of `documents`
  int64_t k_stride, v_stride;
  std::unique_ptr<Tensor> q, k, v;
};

class CachedAttentionTest : public testing::TestWithParam<CachedCase> {};

TEST_P(CachedAttentionTest, MatchesThatOfWholeDocuments) {
  const CachedCase& c = GetParam();
  const Case& all = c.documents;
  for (const DType type : ComputeTypes()) {
    SCOPED_TRACE(NameOf(type));
    const Tensor qkv(type, RandomDoubles(all.tokens() * all.row(), 1, all.magnitude));
    const Reference whole = Attend(all, qkv.values(), {});
    const Cached cached(c, type, qkv);
    const int64_t tokens = cached.boundaries.back(), width = all.output_row();
    Doubles want, want_lse;
    for (const int64_t t : cached.asking) {
      want.insert(want.end(), &whole.output[t * width], &whole.output[t * width] + width);
    }
    for (int64_t head = 0; head < all.num_heads; ++head) {
      for (const int64_t t : cached.asking) {
        want_lse.push_back(whole.log_sum_exp[head * all.tokens() + t]);
      }
    }
    const double inner = type == DType::kBF16 ? 4 : 32 + 4 * all.magnitude * all.magnitude;
    std::string one_thread;
    for (const int threads : {1, 2, 3}) {
      Rig rig(type, threads,
              {.tokens = tokens,
               .num_heads = all.num_heads,
               .num_kv_heads = all.num_kv_heads,
               .head_dim = all.head_dim,
               .longest_document =
                   *std::max_element(cached.key_count.begin(), cached.key_count.end())});
      Tensor output(type, tokens * width), lse(DType::kF32, all.num_heads * tokens);
      Tensor alone(type, tokens * width);
      ASSERT_TRUE(rig.Run(AttentionForward{.input = cached.Input(),
                                           .output = output.data(),
                                           .log_sum_exp = lse.as<float>()})
                      .ok());
      ExpectClose(output.values(), want, RoundingOf(type, inner), "output");
      ExpectClose(lse.values(), want_lse, RoundingOf(DType::kF32, 16), "log_sum_exp");
      ASSERT_TRUE(rig.Run(AttentionForward{.input = cached.Input(), .output = alone.data()}).ok());
      EXPECT_TRUE(alone.bytes() == output.bytes()) << "without log_sum_exp";
      if (threads == 1) one_thread = output.bytes() + lse.bytes();
      EXPECT_TRUE(output.bytes() + lse.bytes() == one_thread) << threads << " threads";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, CachedAttentionTest,
    testing::Values(CachedCase{{"Decoding", 8, 2, 64, {0, 1, 6, 263, 963}}, {1, 1, 1, 1}},
                    CachedCase{{"DecodingOddHead", 3, 1, 12, {0, 9, 300}}, {1, 1}},
                    CachedCase{{"DecodingHead80", 2, 2, 80, {0, 256}}, {1}},
                    CachedCase{{"DecodingHead256", 4, 1, 256, {0, 300, 301}}, {1, 1}},
                    CachedCase{{"DecodingManyHeads", 10, 1, 96, {0, 70}}, {1}},
                    CachedCase{{"DecodingInWindow", 4, 2, 64, {0, 20, 700}, 1, 300}, {1, 1}},
                    CachedCase{{"DecodingSoftCap", 4, 2, 64, {0, 20, 400}, 4, 0, 5}, {1, 1}},
                    CachedCase{{"FewQueries", 6, 2, 64, {0, 2, 10, 266, 600}}, {2, 3, 4, 4}},
                    CachedCase{{"FewQueriesInWindow", 4, 2, 32, {0, 50, 700}, 2, 2, 50}, {3, 4}},
                    CachedCase{{"Chunks", 4, 2, 64, {0, 7, 107, 900}}, {7, 33, 200}},
                    CachedCase{{"ChunksOddHead", 2, 1, 12, {0, 7, 107, 700}}, {5, 33, 70}},
                    CachedCase{{"ChunksInWindow", 2, 1, 64, {0, 40, 900}, 1, 101, 5}, {17, 130}},
                    CachedCase{{"ChunksInWindowOddHead", 2, 1, 80, {0, 40, 900}, 1, 101, 5},
                               {17, 130}},
                    CachedCase{{"Mixed", 4, 2, 64, {0, 300, 301, 500, 540}}, {1, 0, 100, 1}}),
    [](const auto& info) { return info.param.documents.name; });

// Prompts that come in pieces of any size end with the same text.
TEST(AttentionChunksTest, MakeTheWhole) {
  const Case whole{"", 4, 2, 64, {0, 150}};
  const Tensor qkv(DType::kF32, RandomDoubles(whole.tokens() * whole.row(), 1));
  const Doubles want = Attend(whole, qkv.values(), {}).output;
  int32_t at = 0;
  for (const int32_t chunk : {64, 1, 3, 32, 50}) {
    at += chunk;
    CachedCase c{whole, {chunk}};
    c.documents.boundaries = {0, at};
    const Cached cached(c, DType::kF32, qkv);
    Rig rig(DType::kF32, 2,
            {.tokens = chunk,
             .num_heads = 4,
             .num_kv_heads = 2,
             .head_dim = 64,
             .longest_document = at});
    Tensor output(DType::kF32, chunk * whole.output_row());
    ASSERT_TRUE(rig.Run(AttentionForward{.input = cached.Input(), .output = output.data()}).ok());
    const auto begin = want.begin() + (at - chunk) * whole.output_row();
    ExpectClose(output.values(), Doubles(begin, begin + output.size()), RoundingOf(DType::kF32, 32),
                "output");
  }
}

TEST(AttentionErrorsTest, BadRangesOfKeysAreRefused) {
  const CachedCase c{{"", 4, 2, 8, {0, 4, 10}}, {1, 2}};
  const Tensor qkv(DType::kF32, Doubles(10 * c.documents.row()));
  const Cached cached(c, DType::kF32, qkv);
  Tensor output(DType::kF32, 3 * c.documents.output_row());
  const auto refused = [&](std::vector<int64_t> begin, std::vector<int64_t> count) {
    Rig rig(DType::kF32, 1,
            {.num_heads = 4, .num_kv_heads = 2, .head_dim = 8, .longest_document = 10});
    AttentionInput input = cached.Input();
    input.key_begin = begin;
    input.key_count = count;
    return rig.Run(AttentionForward{.input = input, .output = output.data()}).code() ==
           absl::StatusCode::kInvalidArgument;
  };
  EXPECT_FALSE(refused({0, 4}, {4, 6}));
  EXPECT_TRUE(refused({0, -1}, {4, 6}));
  EXPECT_TRUE(refused({0, 4}, {4, 1}));
  EXPECT_TRUE(refused({0, 4}, {4}));
  EXPECT_TRUE(refused({}, {4, 6}));
  EXPECT_TRUE(refused({0}, {4}));
  Rig rig(DType::kF32, 1,
          {.num_heads = 4, .num_kv_heads = 2, .head_dim = 8, .longest_document = 10});
  EXPECT_EQ(rig.Run(AttentionBackward{.input = cached.Input()}).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(AttentionErrorsTest, BadBoundariesAndHeadsAreRefused) {
  Rig rig(DType::kF32, 1,
          {.tokens = 4, .num_heads = 3, .num_kv_heads = 2, .head_dim = 8, .longest_document = 4});
  Tensor x(DType::kF32, Doubles(4 * 7 * 8)), lse(DType::kF32, 12);
  const std::vector<int32_t> whole = {0, 4}, beyond = {0, 5};
  const Case shape{"", 3, 2, 8, {0, 4}};
  AttentionForward op{
      .input = InputOf(shape, x), .output = x.data(), .log_sum_exp = lse.as<float>()};
  EXPECT_EQ(rig.Run(op).code(), absl::StatusCode::kInvalidArgument);
  Rig other(DType::kF32, 1, {});
  op.input.num_kv_heads = 3;
  op.input.boundaries = beyond;
  EXPECT_EQ(other.Run(op).code(), absl::StatusCode::kInvalidArgument);
  Rig small(DType::kF32, 1, {.longest_document = 1, .token_chunk = 0});
  small.ops->SetWorkspace(nullptr, 0);
  op.input.boundaries = whole;
  EXPECT_EQ(small.Run(op).code(), absl::StatusCode::kResourceExhausted);
}

TEST(AttentionErrorsTest, BadWindowsSoftCapsAndStridesAreRefused) {
  const Case shape{"", 4, 2, 8, {0, 4}};
  Rig rig(DType::kF32, 1,
          {.tokens = 4, .num_heads = 4, .num_kv_heads = 2, .head_dim = 8, .longest_document = 4});
  const Tensor qkv(DType::kF32, Doubles(4 * shape.row()));
  Tensor output(DType::kF32, 4 * shape.output_row());
  const AttentionInput good = InputOf(shape, qkv);
  const auto code = [&](const AttentionInput& input) {
    return rig.Run(AttentionForward{.input = input, .output = output.data()}).code();
  };
  EXPECT_EQ(code(good), absl::StatusCode::kOk);
  const auto expect_refused = [&](auto change) {
    AttentionInput bad = good;
    change(bad);
    Rig other(DType::kF32, 1, {.head_dim = 8, .longest_document = 4});
    EXPECT_EQ(other.Run(AttentionForward{.input = bad, .output = output.data()}).code(),
              absl::StatusCode::kInvalidArgument);
  };
  expect_refused([](AttentionInput& input) { input.window = -1; });
  expect_refused([](AttentionInput& input) { input.softcap = -1; });
  expect_refused([](AttentionInput& input) { input.softcap = NAN; });
  expect_refused([](AttentionInput& input) { input.q_stride = 31; });
  expect_refused([](AttentionInput& input) { input.k_stride = 15; });
  expect_refused([](AttentionInput& input) { input.v_stride = 15; });
}

}  // namespace
}  // namespace millrace
