// Drawing text from a model, token by token.
#ifndef MILLRACE_ENGINE_TRAIN_SAMPLER_H_
#define MILLRACE_ENGINE_TRAIN_SAMPLER_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/base/random.h"

namespace millrace {

// How a token is drawn, with the meaning and in the order of Hugging Face's logits processors.
struct SamplingParams {
  double temperature = 0.8;  // 0: greedy, the lowest token where equal
  int64_t top_k = 40;  // the k largest logits, and those equal to the smallest of them; 0: all
  // Of those, the fewest most likely tokens that together reach top_p; in (0, 1], 1: all.
  double top_p = 1;
  // Of those, the ones at least this share as likely as the most likely token; in [0, 1), 0: all.
  double min_p = 0;
  // Logits of tokens in the text so far are divided by this where positive and multiplied where
  // negative (Keskar et al. 2019, section 4.1); 1: off.
  double repetition_penalty = 1;
};

struct Candidate {
  int32_t token;
  double weight;  // of the draw; the most likely token's is 1
};

// The tokens that may be drawn, each with its part of softmax(logits / temperature) up to a common
// factor; one alone where the temperature is 0. Logits that are NaN are none; where all are, nobody
// is a candidate. The repetition penalty is the caller's (PenalizeRepetition).
std::vector<Candidate> Candidates(absl::Span<const float> logits, const SamplingParams& params);

// One of the candidates. `uniform` in [0, 1) decides; -1 where there is none.
int32_t DrawToken(absl::Span<const float> logits, const SamplingParams& params, double uniform);

// `tokens`: each token of the text so far, once.
void PenalizeRepetition(absl::Span<const int32_t> tokens, double penalty, absl::Span<float> logits);

// logits[vocab] of what follows the tokens.
using LogitsFunction =
    absl::FunctionRef<absl::Status(absl::Span<const int32_t> tokens, absl::Span<float> logits)>;

struct GenerationLimits {
  int64_t max_tokens = 64;
  int64_t context = 0;  // only this many last tokens are looked at
  int64_t vocab_size = 0;
  int32_t end_of_document = 0;  // ends the text and is not part of it
};

// The tokens that follow `prompt` (not empty). Token i is decided by random.Uniform(i). They end,
// too, where no logit is a number.
absl::StatusOr<std::vector<int32_t>> Generate(const std::vector<int32_t>& prompt,
                                              const GenerationLimits& limits,
                                              const SamplingParams& params,
                                              const CounterRandom& random, LogitsFunction logits);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_TRAIN_SAMPLER_H_
