// The block's contract with its caller's memory, for every kind of block. What it computes is held
// against transformers by //tests/engine/train:parity_test, and its gradients against differences
// of the loss by //tests/engine/exec:step_runner_test.
#include "engine/model/block.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include "engine/model/rotary_tables.h"
#include "gtest/gtest.h"
#include "tests/engine/model/family_specs.h"
#include "tests/engine/ops/op_test_util.h"

namespace millrace {
namespace {

constexpr int64_t kTokens = 22, kLongest = 11;

OpsLimits LimitsOf(const ModelSpec& spec) {
  return {.tokens = kTokens,
          .hidden = spec.hidden_size,
          .qkv = spec.qkv_size(),
          .query = spec.query_size(),
          .mlp_in = spec.mlp_in_size(),
          .intermediate = spec.intermediate_size,
          .num_heads = spec.num_heads,
          .num_kv_heads = spec.num_kv_heads,
          .head_dim = spec.head_dim,
          .longest_document = kLongest};
}

// One block with random weights, on three documents. Memory begins as NaN and has guards at its
// ends.
class BlockTest : public ::testing::TestWithParam<std::tuple<size_t, DType>> {
 protected:
  BlockTest() {
    int32_t at = 0;
    for (int32_t end : boundaries_) {
      for (int32_t position = 0; at < end; ++at, ++position) positions_.push_back(position);
    }
    FillRotaryTables(spec_, kLongest, kLongest, tables_.as<float>());
  }

  // Of tokens with these positions, in documents with these ends.
  PassContext Pass(const std::vector<int32_t>& boundaries, const std::vector<int32_t>& positions,
                   const KeyValueCache* cache = nullptr) {
    const float* table = tables_.as<float>();
    return {.spec = spec_,
            .ops = *rig_.ops,
            .stream = *rig_.stream,
            .tokens = static_cast<int64_t>(positions.size()),
            .boundaries = boundaries,
            .positions = positions.data(),
            .rotary_table = table,
            .window_rotary_table = table + RotaryTableElements(spec_, kLongest),
            .cache = cache};
  }
  PassContext Pass() { return Pass(boundaries_, positions_); }

  void ExpectDone() {
    const absl::Status status = rig_.stream->Synchronize();
    EXPECT_TRUE(status.ok()) << status;
  }

  Tensor Memory(size_t bytes) const {
    return Tensor(DType::kF32, static_cast<int64_t>(bytes / sizeof(float)));
  }
  Tensor Saved() const { return Memory(BlockSavedBytes(spec_, kTokens, type_)); }
  Tensor Remade() const { return Memory(BlockRemadeBytes(spec_, kTokens, type_)); }
  Tensor Rows() const { return Tensor(type_, kTokens * spec_.hidden_size); }

  const ModelSpec spec_ = FamilyAndMixedSpecs()[std::get<0>(GetParam())];
  const DType type_ = std::get<1>(GetParam());
  const SlabLayout layout_ = MakeSlabLayouts(spec_)[2];
  const std::vector<int32_t> boundaries_ = {0, 5, 11, 22};
  std::vector<int32_t> positions_;
  Rig rig_{type_, 2, LimitsOf(spec_)};
  Tensor weights_{type_, RandomDoubles(layout_.count, 1, 0.3)};
  Tensor x_{type_, RandomDoubles(kTokens* spec_.hidden_size, 2)};
  Tensor tables_{DType::kF32,
                 std::max<int64_t>(1, RotaryTables(spec_)) * RotaryTableElements(spec_, kLongest)};
};

INSTANTIATE_TEST_SUITE_P(Models, BlockTest,
                         ::testing::Combine(::testing::Range<size_t>(0,
                                                                     FamilyAndMixedSpecs().size()),
                                            ::testing::ValuesIn(ComputeTypes())));

TEST_P(BlockTest, RemakesWhatForwardLeft) {
  Tensor saved = Saved(), remade = Remade(), again = Remade(), y = Rows();
  BlockForward(Pass(), layout_, weights_.data(), x_.data(), saved.data(), remade.data(), y.data());
  BlockRemake(Pass(), layout_, weights_.data(), x_.data(), saved.data(), again.data());
  ExpectDone();
  EXPECT_TRUE(again.bytes() == remade.bytes());
}

TEST_P(BlockTest, WithoutItsOutputForwardLeavesTheSame) {
  Tensor saved = Saved(), remade = Remade(), y = Rows();
  BlockForward(Pass(), layout_, weights_.data(), x_.data(), saved.data(), remade.data(), y.data());
  Tensor saved_again = Saved(), remade_again = Remade();
  BlockForward(Pass(), layout_, weights_.data(), x_.data(), saved_again.data(), remade_again.data(),
               nullptr);
  ExpectDone();
  EXPECT_TRUE(saved_again.bytes() == saved.bytes());
  EXPECT_TRUE(remade_again.bytes() == remade.bytes());
}

TEST_P(BlockTest, BackwardReadsNothingButWhatForwardLeft) {
  Tensor saved = Saved(), remade = Remade(), y = Rows();
  Tensor scratch = Memory(BlockScratchBytes(spec_, kTokens, type_));
  Tensor dx(type_, RandomDoubles(kTokens * spec_.hidden_size, 3));
  Tensor gradient(DType::kF32, layout_.count);
  BlockForward(Pass(), layout_, weights_.data(), x_.data(), saved.data(), remade.data(), y.data());
  BlockBackward(Pass(), layout_, weights_.data(), x_.data(), saved.data(), remade.data(),
                scratch.data(), dx.data(), {.data = gradient.data()});
  ExpectDone();
  for (const double value : dx.values()) ASSERT_TRUE(std::isfinite(value));
  const Doubles gradients = gradient.values();
  for (const TensorLayout& tensor : layout_.tensors) {
    for (int64_t i = 0; i < tensor.count(); ++i) {
      ASSERT_TRUE(std::isfinite(gradients[tensor.offset + i])) << static_cast<int>(tensor.role);
    }
  }
}

// Documents in two passes, the second with what the first left in the cache.
TEST_P(BlockTest, WithCachedKeysDocumentsGoOn) {
  const int64_t hidden = spec_.hidden_size;
  Tensor saved = Saved(), remade = Remade(), y = Rows();
  BlockForward(Pass(), layout_, weights_.data(), x_.data(), saved.data(), remade.data(), y.data());
  ExpectDone();
  const Doubles x = x_.values(), whole = y.values();

  // Rows of the cache that are no document's, too.
  const std::vector<int64_t> key_begin = {1, 7, 15};
  constexpr int64_t kRows = 30;
  Tensor keys(type_, spec_.num_layers * kRows * spec_.kv_size());
  Tensor values(type_, spec_.num_layers * kRows * spec_.kv_size());
  const std::vector<int64_t> cut = {3, 1, 8};
  for (bool second : {false, true}) {
    std::vector<int32_t> boundaries = {0}, positions;
    std::vector<int64_t> key_count;
    Doubles part, want;
    for (size_t i = 0; i < cut.size(); ++i) {
      const int64_t length = boundaries_[i + 1] - boundaries_[i];
      const int64_t begin = second ? cut[i] : 0, end = second ? length : cut[i];
      for (int64_t t = begin; t < end; ++t) {
        const auto row = (boundaries_[i] + t) * hidden;
        positions.push_back(static_cast<int32_t>(t));
        part.insert(part.end(), x.begin() + row, x.begin() + row + hidden);
        want.insert(want.end(), whole.begin() + row, whole.begin() + row + hidden);
      }
      boundaries.push_back(static_cast<int32_t>(positions.size()));
      key_count.push_back(end);
    }
    const KeyValueCache cache = {keys.data(), values.data(), kRows, key_begin, key_count};
    Tensor part_x(type_, part), part_y(type_, static_cast<int64_t>(part.size()));
    Tensor part_saved = Saved(), part_remade = Remade();
    BlockForward(Pass(boundaries, positions, &cache), layout_, weights_.data(), part_x.data(),
                 part_saved.data(), part_remade.data(), part_y.data());
    ExpectDone();
    ExpectClose(part_y.values(), want, RoundingOf(type_, 8), second ? "second" : "first");
  }
}

}  // namespace
}  // namespace millrace
