// Drawing text from a model, token by token.
#ifndef MILLRACE_ENGINE_TRAIN_SAMPLER_H_
#define MILLRACE_ENGINE_TRAIN_SAMPLER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/base/random.h"

namespace millrace {

struct SamplingParams {
  double temperature = 0.8;  // 0: greedy, the lowest token where equal
  int64_t top_k = 40;        // only the k most likely tokens are drawn from; 0: all
};

// One token from softmax(logits / temperature) over the top_k largest logits. `uniform` in [0, 1)
// decides.
int32_t DrawToken(absl::Span<const float> logits, const SamplingParams& params, double uniform);

// logits[vocab] of what follows the tokens.
using LogitsFunction =
    absl::FunctionRef<absl::Status(absl::Span<const int32_t> tokens, absl::Span<float> logits)>;

struct GenerationLimits {
  int64_t max_tokens = 64;
  int64_t context = 0;  // only this many last tokens are looked at
  int64_t vocab_size = 0;
  int32_t end_of_document = 0;  // ends the text and is not part of it
};

// The tokens that follow `prompt` (not empty). Token i is decided by random.Uniform(i).
absl::StatusOr<std::vector<int32_t>> Generate(const std::vector<int32_t>& prompt,
                                              const GenerationLimits& limits,
                                              const SamplingParams& params,
                                              const CounterRandom& random, LogitsFunction logits);

// `text` with every byte that is not part of a valid UTF-8 sequence replaced by U+FFFD.
std::string ToValidUtf8(absl::string_view text);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_TRAIN_SAMPLER_H_
