#include "engine/exec/decoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "engine/base/thread_pool.h"
#include "engine/device/cpu/cpu_device.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "engine/state/load_weights.h"
#include "tests/engine/train/golden_model.h"

namespace millrace {
namespace {

using Tokens = std::vector<int32_t>;

// A golden model on a device of its own.
class DecoderTest : public testing::TestWithParam<std::string> {
 protected:
  void Load(DType dtype = DType::kF32) {
    auto state = HostState::CreateWeights(MakeSlabLayouts(spec()), dtype, pool_);
    ASSERT_TRUE(state.ok()) << state.status();
    state_ = *std::move(state);
    const absl::Status read = LoadWeights(spec(), golden_.folder(), pool_, state_.get());
    ASSERT_TRUE(read.ok()) << read;
  }

  void Make(DecoderLimits limits, CpuDeviceMode mode = CpuDeviceMode::kUnified) {
    decoder_ = nullptr;
    ops_ = CreateCpuOps(state_->compute_dtype(), &pool_);
    limits.longest_sequence = std::min<int64_t>(spec().max_positions, 64);
    size_t bytes = 0;
    for (const MemoryItem& item : DecoderMemory(
             spec(), state_->layouts(), state_->compute_dtype(), mode == CpuDeviceMode::kUnified,
             limits, ops_->WorkspaceBytes(MakeOpsLimits(spec(), limits)))) {
      bytes += item.bytes;
    }
    device_ = *CreateCpuDevice({.budget_bytes = bytes, .mode = mode});
    auto decoder =
        Decoder::Create(spec(), state_.get(), device_.get(), ops_.get(), &host_pool_, limits);
    ASSERT_TRUE(decoder.ok()) << decoder.status();
    decoder_ = *std::move(decoder);
  }

  int64_t Begin(int64_t capacity) {
    const auto sequence = decoder_->Begin(capacity);
    EXPECT_TRUE(sequence.ok()) << sequence.status();
    return sequence.ok() ? *sequence : -1;
  }

  // Of what follows each feed.
  std::vector<std::vector<float>> Run(const std::vector<Decoder::Feed>& feeds) {
    const auto vocab = static_cast<size_t>(spec().vocab_size);
    std::vector<float> logits(feeds.size() * vocab);
    const absl::Status status = decoder_->Run(feeds, absl::MakeSpan(logits), nullptr);
    EXPECT_TRUE(status.ok()) << status;
    std::vector<std::vector<float>> rows;
    for (size_t i = 0; i < feeds.size(); ++i) {
      rows.emplace_back(logits.begin() + static_cast<ptrdiff_t>(i * vocab),
                        logits.begin() + static_cast<ptrdiff_t>((i + 1) * vocab));
    }
    return rows;
  }

  // A text of the model's vocabulary.
  Tokens Text(int64_t length, int32_t seed) const {
    Tokens tokens(static_cast<size_t>(length));
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<int32_t>((i * i * 7 + i * 5 + seed * 11) %
                                       static_cast<uint64_t>(spec().vocab_size));
    }
    return tokens;
  }

  // After the last of `tokens`, fed at once to a decoder of its own.
  std::vector<float> LogitsOf(const Tokens& tokens) {
    Make({.sequences = 1, .cache_tokens = 64, .pass_tokens = 64});
    return Run({{Begin(static_cast<int64_t>(tokens.size())), tokens}})[0];
  }

  const ModelSpec& spec() const { return *golden_.spec(); }

  const GoldenModel golden_{GetParam()};
  ThreadPool pool_{2}, host_pool_{2};
  std::unique_ptr<HostState> state_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Decoder> decoder_;
};

TEST_P(DecoderTest, GreedyTextIsThatOfTransformers) {
  Load();
  const auto golden = nlohmann::json::parse(*ReadFile(golden_.folder() + "/generation.json"));
  const Tokens prompt = golden.at("prompt"), expected = golden.at("tokens");
  Make({.sequences = 1, .cache_tokens = 64, .pass_tokens = 16});
  const int64_t text = Begin(std::min<int64_t>(spec().max_positions, 64));
  Tokens fed = prompt, tokens;
  while (tokens.size() < expected.size()) {
    const std::vector<float> logits = Run({{text, fed}})[0];
    const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
    tokens.push_back(static_cast<int32_t>(best));
    fed = {tokens.back()};
  }
  EXPECT_EQ(tokens, expected);
}

TEST_P(DecoderTest, LogitsOfADocumentAreThoseOfTransformers) {
  Load();
  const std::vector<float> expected = golden_.Values("logits");
  const MicroBatch& batch = golden_.steps()[0].batch;
  const auto vocab = static_cast<size_t>(spec().vocab_size);
  const int64_t length = std::min<int64_t>(batch.boundaries[1], spec().max_positions);
  const auto tokens = absl::MakeConstSpan(batch.inputs).first(static_cast<size_t>(length));
  const auto expect = [&](const std::vector<float>& logits, size_t token) {
    for (size_t v = 0; v < vocab; ++v) {
      ASSERT_NEAR(logits[v], expected[token * vocab + v], 1e-4) << "after " << token + 1;
    }
  };
  Make({.sequences = 1, .cache_tokens = 64, .pass_tokens = 64});
  int64_t text = Begin(length);
  expect(Run({{text, tokens}})[0], tokens.size() - 1);
  decoder_->End(text);

  // One by one. Dynamic scaling turns earlier keys by the length of their time.
  if (spec().rotary.scaling == RotaryScaling::kDynamic) return;
  text = Begin(length);
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::vector<float> logits = Run({{text, tokens.subspan(i, 1)}})[0];
    // Rotary embeddings that go by the length are those of the whole only at its end.
    if (!golden_.whole() || i + 1 == tokens.size()) expect(logits, i);
  }
}

TEST_P(DecoderTest, TextsSideBySideAreThoseByThemselves) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    Load(dtype);
    std::vector<Tokens> texts;
    std::vector<std::vector<float>> alone;
    for (int32_t i = 0; i < 3; ++i) {
      texts.push_back(Text(5 + 9 * i, i));
      alone.push_back(LogitsOf(texts.back()));
    }
    for (CpuDeviceMode mode : {CpuDeviceMode::kUnified, CpuDeviceMode::kDiscrete}) {
      // Passes of 16 cut the texts anywhere.
      Make({.sequences = 3, .cache_tokens = 96, .pass_tokens = 16}, mode);
      std::vector<Decoder::Feed> begin, rest;
      for (const Tokens& text : texts) {
        const auto tokens = absl::MakeConstSpan(text);
        begin.push_back({Begin(static_cast<int64_t>(text.size())), tokens.first(text.size() - 2)});
        rest.push_back({begin.back().sequence, tokens.last(2)});
      }
      Run(begin);
      std::swap(rest[0], rest[2]);
      const auto logits = Run(rest);
      const double tolerance = dtype == DType::kF32 ? 1e-4 : 0.1;
      EXPECT_LT(RelativeDistance(logits[0], alone[2]), tolerance);
      EXPECT_LT(RelativeDistance(logits[1], alone[1]), tolerance);
      EXPECT_LT(RelativeDistance(logits[2], alone[0]), tolerance);
    }
  }
}

TEST_P(DecoderTest, AnEndedTextLeavesItsPlace) {
  Load();
  const Tokens text = Text(20, 1);
  const std::vector<float> expected = LogitsOf(text);
  Make({.sequences = 2, .cache_tokens = 40, .pass_tokens = 32});
  const int64_t first = Begin(20), second = Begin(20);
  EXPECT_EQ(decoder_->Begin(1).status().code(), absl::StatusCode::kResourceExhausted);
  const Tokens others = Text(20, 2);
  Run({{first, others}, {second, others}});
  decoder_->End(first);
  EXPECT_EQ(decoder_->Begin(21).status().code(), absl::StatusCode::kResourceExhausted);
  const int64_t third = Begin(20);
  EXPECT_LT(RelativeDistance(Run({{third, text}})[0], expected), 1e-4);
}

TEST_P(DecoderTest, RefusesWhatDoesNotFit) {
  Load();
  Make({.sequences = 1, .cache_tokens = 40});
  EXPECT_EQ(decoder_->Begin(41).status().code(), absl::StatusCode::kInvalidArgument);
  const int64_t text = Begin(3);
  std::vector<float> logits(static_cast<size_t>(spec().vocab_size));
  const Tokens four = Text(4, 0);
  EXPECT_EQ(decoder_->Run({{text, four}}, absl::MakeSpan(logits), nullptr).code(),
            absl::StatusCode::kInvalidArgument);
  const Tokens unknown = {static_cast<int32_t>(spec().vocab_size)};
  EXPECT_EQ(decoder_->Run({{text, unknown}}, absl::MakeSpan(logits), nullptr).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_P(DecoderTest, EndsWhenCancelled) {
  Load();
  Make({.sequences = 1, .cache_tokens = 40});
  const std::atomic<bool> cancelled{true};
  std::vector<float> logits(static_cast<size_t>(spec().vocab_size));
  const Tokens text = Text(4, 0);
  EXPECT_EQ(decoder_->Run({{Begin(10), text}}, absl::MakeSpan(logits), &cancelled).code(),
            absl::StatusCode::kCancelled);
}

INSTANTIATE_TEST_SUITE_P(Models, DecoderTest, testing::ValuesIn(GoldenNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace millrace
