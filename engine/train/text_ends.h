// The tokens that end a model's texts, as its files say.
#ifndef MILLRACE_ENGINE_TRAIN_TEXT_ENDS_H_
#define MILLRACE_ENGINE_TRAIN_TEXT_ENDS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/data/tokenizer.h"

namespace millrace {

// All "eos_token_id" of config.json and generation_config.json of the model directory `path`, or
// those of the GGUF file `path`, and the end of documents of `tokenizer`; ascending.
// INVALID_ARGUMENT names the file and the key whose value is no token id.
absl::StatusOr<std::vector<int32_t>> ReadTextEnds(const std::string& path,
                                                  const Tokenizer& tokenizer);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_TRAIN_TEXT_ENDS_H_
