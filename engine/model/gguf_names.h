// What GGUF files of each architecture call the tensors of a Hugging Face model directory, and what
// llama.cpp's converter does to their values.
#ifndef MILLRACE_ENGINE_MODEL_GGUF_NAMES_H_
#define MILLRACE_ENGINE_MODEL_GGUF_NAMES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace millrace {

// How a tensor in a GGUF file differs from the one in a model directory.
enum class GgufChange : uint8_t {
  kNone,
  // The rows of each head of width d are interleaved: row 2j + s of the head in the file is row
  // s·d/2 + j of it in the directory, since ggml's first kind of rotary embedding turns neighbours
  // where transformers turns halves. By the number of query heads or of key/value heads.
  kInterleavedQuery,
  kInterleavedKey,
  kTransposed,
  // One more than in the directory: transformers' Gemma norms scale by 1 + weight.
  kPlusOne,
};

struct GgufName {
  std::string name;  // of the tensor in the other form
  GgufChange change = GgufChange::kNone;
};

// The name in a model directory of the tensor `gguf_name` ("blk.0.attn_q.weight") of a file of this
// architecture. Nothing for a tensor or an architecture that is not known.
std::optional<GgufName> HubNameOf(absl::string_view architecture, absl::string_view gguf_name);
// The inverse.
std::optional<GgufName> GgufNameOf(absl::string_view architecture, absl::string_view hub_name);

// Whether the tensor is no parameter but a constant that the metadata's reader uses: the factors
// of a scaled rotary embedding.
bool IsGgufConstant(absl::string_view gguf_name);

// "llama", "qwen2", ...
std::vector<std::string> GgufArchitectures();

}  // namespace millrace

#endif  // MILLRACE_ENGINE_MODEL_GGUF_NAMES_H_
