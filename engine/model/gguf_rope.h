// The scaling of rotary embeddings in GGUF files: keys under rope.scaling, and factors in tensors
// (rope_freqs, rope_factors_long, rope_factors_short).
#ifndef MILLRACE_ENGINE_MODEL_GGUF_ROPE_H_
#define MILLRACE_ENGINE_MODEL_GGUF_ROPE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/model/gguf_keys.h"
#include "engine/model/gguf_writer.h"
#include "engine/model/model_spec.h"
#include "nlohmann/json.hpp"

namespace millrace {

// Adds `rope_scaling`, `partial_rotary_factor` and, for phi3, `original_max_position_embeddings` to
// a config that has rope_theta, head_dim and max_position_embeddings.
//
// Llama 3's scaling is a list of factors in the file, whose parameters are found again. Any other
// list becomes longrope with the same factors for all lengths, which computes the same.
absl::Status ReadGgufRope(GgufKeys& keys, nlohmann::json& config);

// A tensor that is no parameter, in F32.
struct GgufConstant {
  std::string name;
  std::vector<float> values;
};

struct GgufRope {
  GgufMetadata metadata;
  std::vector<GgufConstant> constants;
};

// What ReadGgufRope reads back. UNIMPLEMENTED for what llama.cpp does not compute for this
// architecture.
absl::StatusOr<GgufRope> WriteGgufRope(absl::string_view architecture, const ModelSpec& spec);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_MODEL_GGUF_ROPE_H_
