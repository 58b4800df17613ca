// A GGUF file's metadata as the config.json of a Hugging Face model directory.
#ifndef MILLRACE_ENGINE_MODEL_GGUF_CONFIG_H_
#define MILLRACE_ENGINE_MODEL_GGUF_CONFIG_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/model/gguf_file.h"
#include "nlohmann/json.hpp"

namespace millrace {

// For the architectures llama, qwen2, qwen3, gemma2, gemma3, phi3 and gpt2. What the file says in
// tensors is in the config too: vocab_size, tied embeddings, biases, factors of the rotary
// embedding. Whether the model can be trained is for ParseModelConfig to say.
//
// INVALID_ARGUMENT names the file and the key that is missing or of the wrong type, and any key of
// the architecture that is not known: it might change the mathematics.
absl::StatusOr<nlohmann::json> GgufConfig(const GgufFile& file);

// `query_pre_attn_scalar` of a gemma2 or gemma3 file, which does not say it: heads' width, but in
// the largest model of each generation, known by the number of blocks, what their width would be if
// they divided the residual stream.
int64_t GemmaQueryScalar(absl::string_view architecture, int64_t layers, int64_t hidden,
                         int64_t heads, int64_t head_dim);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_MODEL_GGUF_CONFIG_H_
