// Texts that go on from prompts: decoder, sampler and text stream together.
//
// Prompts pass through the model first, as many as there is memory for; then all texts that have
// not ended go on by a token at a time, side by side, and where one ends the next prompt comes in.
#ifndef MILLRACE_ENGINE_TRAIN_TEXT_GENERATOR_H_
#define MILLRACE_ENGINE_TRAIN_TEXT_GENERATOR_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/train/inference_model.h"
#include "engine/train/sampler.h"

namespace millrace {

enum class TextEnd : uint8_t {
  kNone,    // it goes on
  kEnd,     // a token that ends texts
  kStop,    // a stop string
  kLength,  // max_tokens
};

struct GenerateOptions {
  int64_t max_tokens = 128;  // of each text
  SamplingParams sampling;
  // What the tokens of a text are is a function of this, of its prompt, and of how many equal
  // prompts come before it.
  uint64_t seed = 0;
  std::vector<std::string> stop;  // none empty
  bool ignore_end = false;        // goes on past tokens that end texts
};

struct TextPiece {
  size_t prompt;     // index
  std::string text;  // whole characters; may be empty
  std::vector<int32_t> tokens;
  TextEnd end = TextEnd::kNone;
};

struct GenerateFigures {
  int64_t prompt_tokens = 0, generated_tokens = 0;
  double prompt_seconds = 0, generation_seconds = 0;
};

// Gives pieces to `sink` as they come, of each prompt in order; with its last one a text has ended.
// Ends with the status of `sink` where that is not OK, with CANCELLED when the flag is set.
// INVALID_ARGUMENT names the prompt that with max_tokens is longer than the model's max_positions;
// RESOURCE_EXHAUSTED says what is needed and free where less than `free_bytes` are needed for one
// text. `prompts` are tokens, none empty.
absl::StatusOr<GenerateFigures> GenerateTexts(const InferenceModel& model,
                                              absl::Span<const std::vector<int32_t>> prompts,
                                              const GenerateOptions& options, int64_t free_bytes,
                                              const std::atomic<bool>* cancelled,
                                              absl::FunctionRef<absl::Status(TextPiece)> sink);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_TRAIN_TEXT_GENERATOR_H_
