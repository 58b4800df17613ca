#include "engine/ops/embedding.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/ops/op_test_util.h"

namespace millrace {
namespace {

constexpr int64_t kVocab = 50, kPositions = 20, kTokens = 17, kHidden = 1100;

// Between two numbers of bf16; Gemma's for a hidden size of 1152.
const double kScale = std::sqrt(1152.0);

double Rounded(double scale, DType type) { return Tensor(type, Doubles{scale}).values()[0]; }

std::vector<int32_t> Ids(int64_t count, int64_t rows) {
  std::vector<int32_t> ids(count);
  for (int64_t i = 0; i < count; ++i) ids[i] = static_cast<int32_t>((i * i + 3) % rows);
  return ids;
}

TEST(GatherEmbeddingsTest, AddsScaledTokenAndPositionRows) {
  const std::vector<int32_t> inputs = Ids(kTokens, kVocab), positions = Ids(kTokens, kPositions);
  for (const DType type : {DType::kF32, DType::kBF16}) {
    for (const auto& [with_positions, scale] :
         {std::pair(false, 1.0), std::pair(true, 1.0), std::pair(false, kScale),
          std::pair(true, kScale)}) {
      const Tensor table(type, RandomDoubles(kVocab * kHidden, 1));
      const Tensor position_table(type, RandomDoubles(kPositions * kHidden, 2));
      Tensor y(type, kTokens * kHidden);
      ThreadPool pool(2);
      const absl::Status status =
          GatherEmbeddings({.inputs = inputs,
                            .positions = positions,
                            .hidden = kHidden,
                            .vocab = kVocab,
                            .max_positions = kPositions,
                            .dtype = type,
                            .scale = scale,
                            .token_table = table.data(),
                            .position_table = with_positions ? position_table.data() : nullptr,
                            .y = y.data()},
                           pool);
      ASSERT_TRUE(status.ok()) << status;
      const Doubles rows = table.values(), position_rows = position_table.values();
      Doubles want(kTokens * kHidden);
      for (int64_t i = 0; i < kTokens * kHidden; ++i) {
        want[i] = Rounded(scale, type) * rows[inputs[i / kHidden] * kHidden + i % kHidden];
        if (with_positions) {
          want[i] += position_rows[positions[i / kHidden] * kHidden + i % kHidden];
        }
      }
      ExpectClose(y.values(), want, RoundingOf(type, scale == 1 ? 0 : 1), "y");
    }
  }
}

TEST(GatherEmbeddingsTest, NamesAnIdThatIsNoRow) {
  const Tensor table(DType::kF32, Doubles(kVocab * 2));
  Tensor y(DType::kF32, 2);
  ThreadPool pool(1);
  const auto gather = [&](int32_t token, int32_t position) {
    return GatherEmbeddings({.inputs = {token},
                             .positions = {position},
                             .hidden = 2,
                             .vocab = kVocab,
                             .max_positions = kPositions,
                             .dtype = DType::kF32,
                             .token_table = table.data(),
                             .position_table = table.data(),
                             .y = y.data()},
                            pool);
  };
  EXPECT_TRUE(gather(kVocab - 1, kPositions - 1).ok());
  for (const auto& [token, position, named] :
       {std::tuple(kVocab, int64_t{0}, "token 50"), std::tuple(int64_t{-1}, int64_t{0}, "token -1"),
        std::tuple(int64_t{0}, kPositions, "position 20")}) {
    const absl::Status status = gather(static_cast<int32_t>(token), static_cast<int32_t>(position));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(named));
  }
}

TEST(ScatterEmbeddingGradientsTest, AddsEachRowsScaledSumOnceAndTouchesNoOther) {
  const std::vector<int32_t> inputs = Ids(kTokens, kVocab), positions = Ids(kTokens, kPositions);
  for (const DType type : ComputeTypes()) {
    for (const auto& [table_type, scale] :
         {std::pair(DType::kF32, 1.0), std::pair(DType::kBF16, 1.0), std::pair(DType::kF32, kScale),
          std::pair(DType::kBF16, kScale)}) {
      const Tensor dy(type, RandomDoubles(kTokens * kHidden, 1));
      const Doubles old = Tensor(table_type, RandomDoubles(kVocab * kHidden, 2)).values();
      Doubles want = old, want_positions(kPositions * kHidden);
      const Doubles dy_values = dy.values();
      for (int64_t i = 0; i < kTokens * kHidden; ++i) {
        want[inputs[i / kHidden] * kHidden + i % kHidden] += Rounded(scale, type) * dy_values[i];
        want_positions[positions[i / kHidden] * kHidden + i % kHidden] += dy_values[i];
      }
      std::string one_thread;
      for (const int threads : {1, 2, 3}) {
        ThreadPool pool(threads);
        Tensor table(table_type, old);
        Tensor position_table(table_type, Doubles(kPositions * kHidden));
        ScatterEmbeddingGradients({.inputs = inputs,
                                   .positions = positions,
                                   .hidden = kHidden,
                                   .dtype = type,
                                   .scale = scale,
                                   .dy = dy.data(),
                                   .table_dtype = table_type,
                                   .token_table = table.data(),
                                   .position_table = position_table.data()},
                                  pool);
        ExpectClose(table.values(), want, RoundingOf(table_type, 1), "token rows");
        ExpectClose(position_table.values(), want_positions, RoundingOf(table_type, 1),
                    "position rows");
        const Doubles got = table.values();
        for (int64_t row = 0; row < kVocab; ++row) {
          if (std::find(inputs.begin(), inputs.end(), row) != inputs.end()) continue;
          for (int64_t j = row * kHidden; j < (row + 1) * kHidden; ++j) ASSERT_EQ(got[j], old[j]);
        }
        const std::string bytes = table.bytes() + position_table.bytes();
        if (threads == 1) one_thread = bytes;
        EXPECT_TRUE(bytes == one_thread) << threads << " threads";
      }
    }
  }
}

}  // namespace
}  // namespace millrace
