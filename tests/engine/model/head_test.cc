#include "engine/model/head.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "tests/engine/ops/op_test_util.h"

namespace millrace {
namespace {

struct Case {
  bool layer_norm, tied;
  int64_t micro_batches, tokens, token_chunk, vocab, vocab_tile;
  double z_loss = 0;
};

ModelSpec SpecOf(const Case& c) {
  ModelSpec spec;
  spec.vocab_size = c.vocab;
  spec.hidden_size = 48;
  spec.num_layers = 1;
  spec.num_heads = spec.num_kv_heads = 3;
  spec.head_dim = spec.rotary_width = 16;
  spec.intermediate_size = 64;
  spec.max_positions = 8;
  spec.norm = c.layer_norm ? NormKind::kLayerNorm : NormKind::kRmsNorm;
  spec.norm_bias = c.layer_norm;
  spec.tied_embeddings = c.tied;
  return spec;
}

OpsLimits LimitsOf(const Case& c) {
  return {.tokens = c.tokens,
          .hidden = 48,
          .vocab = c.vocab,
          .token_chunk = c.token_chunk,
          .vocab_tile = c.vocab_tile};
}

// A head with its operands on a device, and the results of one step.
class Head {
 public:
  Head(DType type, int threads, const Case& c)
      : type_(type),
        case_(c),
        spec_(SpecOf(c)),
        layouts_(MakeSlabLayouts(spec_)),
        rig_(type, threads, LimitsOf(c)),
        weights_(type, RandomDoubles(layouts_.back().count, 1, 0.5, 0.5)),
        embedding_(type, RandomDoubles(layouts_.front().count, 2, 0.5)),
        scratch_(DType::kBF16,
                 static_cast<int64_t>(HeadScratchBytes(spec_, c.tokens, c.token_chunk, type) / 2)),
        gradient_(DType::kF32, layouts_.back().count),
        embedding_gradient_(DType::kF32, layouts_.front().count) {
    for (int64_t b = 0; b < c.micro_batches; ++b) {
      x_.emplace_back(type, RandomDoubles(elements(), 3 + b));
      dx_.emplace_back(type, elements());
      std::vector<int32_t>& targets = targets_.emplace_back(c.tokens);
      for (int64_t i = 0; i < c.tokens; ++i) {
        targets[i] = i % 7 == 5 ? -1 : static_cast<int32_t>((i * 7919 + b) % c.vocab);
      }
    }
    // A chunk that has none but ignored tokens.
    if (c.tokens > c.token_chunk) std::fill_n(targets_[0].begin(), c.token_chunk, -100);
  }

  void Whole() {
    for (int64_t b = case_.micro_batches - 1; b >= 0; --b) {
      HeadForwardBackward(Pass(), Weights(), Loss(b), x_[b].data(), scratch_.data(), dx_[b].data(),
                          {.slab = Norm(b), .projection = Projection(b, 0)});
    }
    ASSERT_TRUE(rig_.stream->Synchronize().ok());
  }

  void Tiled() {
    std::vector<Tensor> statistics, normed_gradients;
    for (int64_t b = 0; b < case_.micro_batches; ++b) {
      statistics.emplace_back(DType::kF32,
                              static_cast<int64_t>(HeadStatisticsBytes(case_.tokens) / 4));
      normed_gradients.emplace_back(
          DType::kF32, static_cast<int64_t>(HeadNormedGradientBytes(spec_, case_.tokens) / 4));
    }
    for (int64_t first = 0; first < case_.vocab; first += case_.vocab_tile) {
      const Tensor tile = TileWeights(first);
      for (int64_t b = case_.micro_batches - 1; b >= 0; --b) {
        HeadStatistics(Pass(), WeightsWithoutProjection(), TileOf(first, tile), Loss(b),
                       x_[b].data(), scratch_.data(), statistics[b].data());
      }
      ASSERT_TRUE(rig_.stream->Synchronize().ok());
    }
    for (int64_t first = 0; first < case_.vocab; first += case_.vocab_tile) {
      const Tensor tile = TileWeights(first);
      for (int64_t b = case_.micro_batches - 1; b >= 0; --b) {
        HeadTileGradient(Pass(), WeightsWithoutProjection(), TileOf(first, tile), Loss(b),
                         x_[b].data(), scratch_.data(), statistics[b].data(),
                         normed_gradients[b].as<float>(), Projection(b, first));
      }
      ASSERT_TRUE(rig_.stream->Synchronize().ok());
    }
    for (int64_t b = case_.micro_batches - 1; b >= 0; --b) {
      HeadFinish(Pass(), WeightsWithoutProjection(), Loss(b), x_[b].data(), scratch_.data(),
                 normed_gradients[b].as<float>(), dx_[b].data(), Norm(b));
    }
    ASSERT_TRUE(rig_.stream->Synchronize().ok());
  }

  // The losses alone.
  void EvaluateWhole() {
    HeadForward(Pass(), Weights(), Loss(0), x_[0].data(), scratch_.data());
    ASSERT_TRUE(rig_.stream->Synchronize().ok());
  }
  void EvaluateTiled() {
    Tensor statistics(DType::kF32, static_cast<int64_t>(HeadStatisticsBytes(case_.tokens) / 4));
    for (int64_t first = 0; first < case_.vocab; first += case_.vocab_tile) {
      const Tensor tile = TileWeights(first);
      HeadStatistics(Pass(), WeightsWithoutProjection(), TileOf(first, tile), Loss(0), x_[0].data(),
                     scratch_.data(), statistics.data());
      ASSERT_TRUE(rig_.stream->Synchronize().ok());
    }
  }

  // Logits by tiles of `tile` classes.
  Doubles Logits(int64_t tile) {
    Tensor logits(DType::kF32, case_.vocab);
    for (int64_t first = 0; first < case_.vocab; first += tile) {
      const void* weights = static_cast<const std::byte*>(Weights().projection) +
                            first * spec_.hidden_size * SizeOf(type_);
      HeadLogits(Pass(), WeightsWithoutProjection(),
                 {first, std::min(tile, case_.vocab - first), weights}, x_[0].data(),
                 case_.tokens - 1, 1, scratch_.data(), logits.as<float>());
    }
    EXPECT_TRUE(rig_.stream->Synchronize().ok());
    return logits.values();
  }

  // What the whole micro-batch's norm, linear layer and norm backward give for the same loss.
  void ExpectGradientsOfWholeMicroBatch();

  double loss() const { return loss_; }
  // Of all results, bit by bit.
  std::string bytes() const {
    std::string bytes(reinterpret_cast<const char*>(&loss_), sizeof(loss_));
    for (const Tensor& dx : dx_) bytes += dx.bytes();
    for (const TensorLayout& tensor : layouts_.back().tensors) {
      bytes += gradient_.bytes().substr(tensor.offset * 4, tensor.count() * 4);
    }
    if (case_.tied) {
      const TensorLayout& table = *layouts_.front().Find(TensorRole::kTokenEmbedding);
      bytes += embedding_gradient_.bytes().substr(table.offset * 4, table.count() * 4);
    }
    return bytes;
  }

 private:
  int64_t elements() const { return case_.tokens * spec_.hidden_size; }

  PassContext Pass() {
    return {.spec = spec_,
            .ops = *rig_.ops,
            .stream = *rig_.stream,
            .tokens = case_.tokens,
            .boundaries = {},
            .positions = nullptr,
            .rotary_table = nullptr};
  }

  HeadWeights Weights() const {
    return {.layout = layouts_.back(),
            .slab = weights_.data(),
            .projection = case_.tied ? BindTensor(layouts_.front(), embedding_.data(), type_,
                                                  TensorRole::kTokenEmbedding)
                                     : BindTensor(layouts_.back(), weights_.data(), type_,
                                                  TensorRole::kOutputProjection)};
  }
  HeadWeights WeightsWithoutProjection() const {
    return {.layout = layouts_.back(), .slab = weights_.data()};
  }

  // A copy of its own, so that nothing beside a tile can be read.
  Tensor TileWeights(int64_t first) const {
    const int64_t count = std::min(case_.vocab_tile, case_.vocab - first) * spec_.hidden_size;
    Tensor tile(type_, count);
    std::memcpy(tile.data(),
                static_cast<const std::byte*>(Weights().projection) +
                    first * spec_.hidden_size * SizeOf(type_),
                count * SizeOf(type_));
    return tile;
  }
  HeadTile TileOf(int64_t first, const Tensor& tile) const {
    return {first, tile.size() / spec_.hidden_size, tile.data()};
  }

  HeadLoss Loss(int64_t b) {
    return {.targets = targets_[b].data(),
            .gradient_scale = 0.5f,
            .token_chunk = case_.token_chunk,
            .vocab_tile = case_.vocab_tile,
            .z_loss = case_.z_loss,
            .loss_sum = &loss_};
  }

  bool Adds(int64_t b) const { return b < case_.micro_batches - 1; }
  SlabGradient Norm(int64_t b) { return {gradient_.data(), DType::kF32, Adds(b)}; }
  // From class `first` on.
  GradientTarget Projection(int64_t b, int64_t first) {
    const SlabLayout& layout = case_.tied ? layouts_.front() : layouts_.back();
    const TensorRole role =
        case_.tied ? TensorRole::kTokenEmbedding : TensorRole::kOutputProjection;
    float* data = (case_.tied ? embedding_gradient_ : gradient_).as<float>();
    return {data + layout.Find(role)->offset + first * spec_.hidden_size, DType::kF32, Adds(b)};
  }

  const DType type_;
  const Case case_;
  const ModelSpec spec_;
  const std::vector<SlabLayout> layouts_;
  Rig rig_;
  Tensor weights_, embedding_, scratch_, gradient_, embedding_gradient_;
  std::vector<Tensor> x_, dx_;
  std::vector<std::vector<int32_t>> targets_;
  double loss_ = 1;
};

void Head::ExpectGradientsOfWholeMicroBatch() {
  const Tolerance tolerance = RoundingOf(type_, type_ == DType::kBF16 ? 8 : 256);
  const TensorLayout& norm = *layouts_.back().Find(TensorRole::kFinalNorm);
  Head one(type_, rig_.pool.threads(), [this] {
    Case c = case_;
    c.token_chunk = c.tokens;
    c.vocab_tile = 0;
    return c;
  }());
  one.targets_ = targets_;
  one.Whole();
  EXPECT_NEAR(loss_, one.loss_, 1e-5 * one.loss_);
  for (size_t b = 0; b < dx_.size(); ++b) {
    ExpectClose(dx_[b].values(), one.dx_[b].values(), tolerance, "dx");
  }
  const auto part = [](const Tensor& tensor, const TensorLayout& layout) {
    const Doubles values = tensor.values();
    return Doubles(values.begin() + layout.offset, values.begin() + layout.offset + layout.count());
  };
  ExpectClose(part(gradient_, norm), part(one.gradient_, norm), tolerance, "dnorm");
  const SlabLayout& layout = case_.tied ? layouts_.front() : layouts_.back();
  const TensorLayout& projection =
      *layout.Find(case_.tied ? TensorRole::kTokenEmbedding : TensorRole::kOutputProjection);
  ExpectClose(part(case_.tied ? embedding_gradient_ : gradient_, projection),
              part(case_.tied ? one.embedding_gradient_ : one.gradient_, projection), tolerance,
              "dprojection");
}

class HeadTest : public testing::TestWithParam<std::tuple<DType, int, Case>> {
 protected:
  Head Make() const {
    return {std::get<0>(GetParam()), std::get<1>(GetParam()), std::get<2>(GetParam())};
  }
};

TEST_P(HeadTest, StreamedTilesGiveTheBitsOfWholeWeights) {
  Head whole = Make(), tiled = Make();
  whole.Whole();
  tiled.Tiled();
  EXPECT_GT(whole.loss(), 1);
  const std::string want = whole.bytes(), got = tiled.bytes();
  ASSERT_EQ(got.size(), want.size());
  EXPECT_EQ(std::memcmp(got.data(), want.data(), want.size()), 0);
}

TEST_P(HeadTest, EvaluationGivesTheSameLossBothWays) {
  Head whole = Make(), tiled = Make();
  whole.EvaluateWhole();
  tiled.EvaluateTiled();
  const double want = whole.loss(), got = tiled.loss();
  EXPECT_EQ(std::memcmp(&got, &want, sizeof(want)), 0);
}

TEST_P(HeadTest, ChunksAndTilesAddUpToTheWholeMicroBatch) {
  Head head = Make();
  head.Whole();
  head.ExpectGradientsOfWholeMicroBatch();
}

TEST_P(HeadTest, LogitsByTilesAreThoseOfAllClasses) {
  const Case& c = std::get<2>(GetParam());
  Head head = Make();
  ExpectClose(head.Logits(c.vocab_tile), head.Logits(c.vocab), RoundingOf(DType::kF32, 16),
              "logits");
}

INSTANTIATE_TEST_SUITE_P(
    Cases, HeadTest,
    testing::Combine(testing::ValuesIn(ComputeTypes()), testing::Values(1, 2, 3),
                     testing::Values(Case{false, false, 1, 13, 5, 101, 7, 1e-2},
                                     Case{false, true, 2, 77, 32, 1000, 333},
                                     Case{true, true, 1, 64, 64, 700, 256, 1e-3},
                                     Case{true, false, 3, 140, 64, 2500, 1600})));

}  // namespace
}  // namespace millrace
