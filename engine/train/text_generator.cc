#include "engine/train/text_generator.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/random.h"
#include "engine/base/status_macros.h"
#include "engine/device/cpu/cpu_device.h"
#include "engine/exec/decoder.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "engine/train/text_stream.h"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;

// Texts that go on side by side: beyond, products have as many rows as are worth a pass.
constexpr int64_t kMostTexts = 32;

// A text that has not ended.
struct Text {
  Text(const InferenceModel& model, size_t prompt, absl::Span<const int32_t> prompt_tokens,
       const GenerateOptions& options, CounterRandom random, int64_t sequence)
      : prompt(prompt),
        sequence(sequence),
        random(random),
        stream(*model.tokenizer, prompt_tokens, options.stop),
        is_seen(static_cast<size_t>(model.spec.vocab_size)) {
    for (int32_t token : prompt_tokens) See(token);
  }

  void See(int32_t token) {
    if (is_seen[static_cast<size_t>(token)]) return;
    is_seen[static_cast<size_t>(token)] = true;
    seen.push_back(token);
  }

  size_t prompt;
  int64_t sequence;
  CounterRandom random;
  TextStream stream;
  std::vector<int32_t> seen;  // each token of the text once
  std::vector<bool> is_seen;
  int64_t generated = 0;
  int32_t last = 0;  // token
};

class Generator {
 public:
  Generator(const InferenceModel& model, absl::Span<const std::vector<int32_t>> prompts,
            const GenerateOptions& options, const std::atomic<bool>* cancelled,
            absl::FunctionRef<absl::Status(TextPiece)> sink)
      : model_(model),
        prompts_(prompts),
        options_(options),
        cancelled_(cancelled),
        sink_(sink),
        ops_(CreateCpuOps(model.state->compute_dtype(), model.pool.get())) {}

  // As many texts at a time as there is memory for.
  absl::Status MakeDecoder(int64_t free_bytes) {
    DecoderLimits limits;
    for (size_t i = 0; i < prompts_.size(); ++i) {
      limits.longest_sequence = std::max(limits.longest_sequence, Capacity(i));
    }
    const int64_t positions = model_.spec.max_positions;
    for (size_t i = 0; i < prompts_.size(); ++i) {
      const auto length = static_cast<int64_t>(prompts_[i].size());
      if (length + options_.max_tokens <= positions) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "max_tokens: prompt ", i, " has ", length, " tokens and with ", options_.max_tokens,
          " more is longer than the model's ", positions, " positions; ",
          length < positions ? absl::StrCat("give at most ", positions - length)
                             : std::string("shorten the prompt")));
    }
    int64_t needed = 0;
    for (int64_t texts = std::min<int64_t>(kMostTexts, static_cast<int64_t>(prompts_.size()));
         texts >= 1; texts /= 2) {
      limits.sequences = texts;
      limits.cache_tokens = CacheTokens(texts);
      needed = DeviceBytes(limits);
      if (needed <= free_bytes || texts == 1) break;
    }
    if (needed > free_bytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat("a text of ", limits.longest_sequence, " tokens needs ", needed,
                       " bytes of memory beside the model, of which ", free_bytes,
                       " are free; shorten the prompt or lower max_tokens"));
    }
    MILLRACE_ASSIGN_OR_RETURN(device_, CreateCpuDevice(static_cast<size_t>(needed)));
    MILLRACE_ASSIGN_OR_RETURN(
        decoder_, Decoder::Create(model_.spec, model_.state.get(), device_.get(), ops_.get(),
                                  model_.pool.get(), limits));
    logits_.resize(static_cast<size_t>(limits.sequences * model_.spec.vocab_size));
    return absl::OkStatus();
  }

  absl::StatusOr<GenerateFigures> Run() {
    while (next_prompt_ < prompts_.size() || !texts_.empty()) {
      MILLRACE_RETURN_IF_ERROR(BeginTexts());
      MILLRACE_RETURN_IF_ERROR(GoOn());
    }
    return figures_;
  }

 private:
  // Tokens of a whole text. The last one is not fed.
  int64_t Capacity(size_t prompt) const {
    return static_cast<int64_t>(prompts_[prompt].size()) + options_.max_tokens - 1;
  }

  // Of the `texts` longest.
  int64_t CacheTokens(int64_t texts) const {
    std::vector<int64_t> all;
    for (size_t i = 0; i < prompts_.size(); ++i) all.push_back(Capacity(i));
    std::sort(all.begin(), all.end(), std::greater<>());
    int64_t sum = 0;
    for (int64_t i = 0; i < texts; ++i) sum += all[static_cast<size_t>(i)];
    return sum;
  }

  int64_t DeviceBytes(const DecoderLimits& limits) const {
    size_t bytes = 0;
    for (const MemoryItem& item : DecoderMemory(
             model_.spec, model_.state->layouts(), model_.state->compute_dtype(),
             /*unified=*/true, limits, ops_->WorkspaceBytes(MakeOpsLimits(model_.spec, limits)))) {
      bytes += item.bytes;
    }
    return static_cast<int64_t>(bytes);
  }

  // New texts as far as there is room, and their first tokens.
  absl::Status BeginTexts() {
    std::vector<Text> texts;
    std::vector<Decoder::Feed> feeds;
    while (next_prompt_ < prompts_.size()) {
      const absl::StatusOr<int64_t> sequence = decoder_->Begin(Capacity(next_prompt_));
      if (absl::IsResourceExhausted(sequence.status())) break;
      MILLRACE_RETURN_IF_ERROR(sequence.status());
      const std::vector<int32_t>& prompt = prompts_[next_prompt_];
      const auto equals = std::count(prompts_.begin(), prompts_.begin() + next_prompt_, prompt);
      texts.emplace_back(model_, next_prompt_, prompt, options_,
                         CounterRandom(options_.seed, static_cast<uint64_t>(equals)), *sequence);
      feeds.push_back({*sequence, prompt});
      figures_.prompt_tokens += static_cast<int64_t>(prompt.size());
      ++next_prompt_;
    }
    if (texts.empty()) return absl::OkStatus();
    MILLRACE_RETURN_IF_ERROR(Feed(feeds, &texts, &figures_.prompt_seconds));
    for (Text& text : texts) texts_.push_back(std::move(text));
    return absl::OkStatus();
  }

  // One more token of each text.
  absl::Status GoOn() {
    if (texts_.empty()) return absl::OkStatus();
    std::vector<Decoder::Feed> feeds;
    for (const Text& text : texts_) feeds.push_back({text.sequence, {&text.last, 1}});
    return Feed(feeds, &texts_, &figures_.generation_seconds);
  }

  // Feeds `texts`, draws their next tokens, and drops those that end with them.
  absl::Status Feed(const std::vector<Decoder::Feed>& feeds, std::vector<Text>* texts,
                    double* seconds) {
    const Clock::time_point start = Clock::now();
    const auto vocab = static_cast<size_t>(model_.spec.vocab_size);
    const absl::Span<float> logits = absl::MakeSpan(logits_).first(feeds.size() * vocab);
    MILLRACE_RETURN_IF_ERROR(decoder_->Run(feeds, logits, cancelled_));
    model_.pool->ParallelFor(static_cast<int64_t>(texts->size()), [&](int64_t begin, int64_t end) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
        Draw(logits.subspan(i * vocab, vocab), &(*texts)[i]);
      }
    });
    *seconds += std::chrono::duration<double>(Clock::now() - start).count();
    std::vector<Text> left;
    for (Text& text : *texts) {
      MILLRACE_ASSIGN_OR_RETURN(const bool ended, Tell(&text));
      if (ended) {
        decoder_->End(text.sequence);
      } else {
        left.push_back(std::move(text));
      }
    }
    *texts = std::move(left);
    return absl::OkStatus();
  }

  void Draw(absl::Span<float> logits, Text* text) const {
    if (options_.sampling.repetition_penalty != 1) {
      PenalizeRepetition(text->seen, options_.sampling.repetition_penalty, logits);
    }
    text->last = DrawToken(logits, options_.sampling,
                           text->random.Uniform(static_cast<uint64_t>(text->generated)));
  }

  // Gives the piece that the text's last token makes; whether it is the last piece.
  absl::StatusOr<bool> Tell(Text* text) {
    if (text->last < 0) {
      return absl::InternalError(
          "the model's logits are not numbers; its weights may be damaged, or its training may "
          "have diverged");
    }
    ++text->generated;
    ++figures_.generated_tokens;
    text->See(text->last);
    TextPiece piece{.prompt = text->prompt, .tokens = {text->last}};
    if (!options_.ignore_end && model_.Ends(text->last)) {
      piece.end = TextEnd::kEnd;
    } else {
      piece.text = text->stream.Add(text->last);
      if (text->stream.stopped()) {
        piece.end = TextEnd::kStop;
      } else if (text->generated == options_.max_tokens) {
        piece.end = TextEnd::kLength;
      }
    }
    const bool ended = piece.end != TextEnd::kNone;
    if (ended) piece.text += text->stream.Finish();
    MILLRACE_RETURN_IF_ERROR(sink_(std::move(piece)));
    return ended;
  }

  const InferenceModel& model_;
  const absl::Span<const std::vector<int32_t>> prompts_;
  const GenerateOptions& options_;
  const std::atomic<bool>* const cancelled_;
  const absl::FunctionRef<absl::Status(TextPiece)> sink_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Decoder> decoder_;
  std::vector<float> logits_;
  std::vector<Text> texts_;
  size_t next_prompt_ = 0;
  GenerateFigures figures_;
};

}  // namespace

absl::StatusOr<GenerateFigures> GenerateTexts(const InferenceModel& model,
                                              absl::Span<const std::vector<int32_t>> prompts,
                                              const GenerateOptions& options, int64_t free_bytes,
                                              const std::atomic<bool>* cancelled,
                                              absl::FunctionRef<absl::Status(TextPiece)> sink) {
  Generator generator(model, prompts, options, cancelled, sink);
  MILLRACE_RETURN_IF_ERROR(generator.MakeDecoder(free_bytes));
  return generator.Run();
}

}  // namespace millrace
