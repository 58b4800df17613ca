// What a GGUF file says of a model beside its parameters.
#ifndef MILLRACE_ENGINE_MODEL_GGUF_METADATA_H_
#define MILLRACE_ENGINE_MODEL_GGUF_METADATA_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/gguf_rope.h"
#include "engine/model/gguf_writer.h"
#include "engine/model/model_spec.h"

namespace millrace {

struct GgufModel {
  std::string architecture;             // "llama"
  GgufMetadata metadata;                // its keys, and general.architecture
  std::vector<GgufConstant> constants;  // tensors that are no parameters
};

// What GgufConfig reads back: to the same spec, but that a Mistral model without a window becomes a
// llama, which is the same, and that numbers are f32 in the file. UNIMPLEMENTED names a family that
// is not written, and what of the model such a file cannot say or llama.cpp does not compute.
absl::StatusOr<GgufModel> DescribeForGguf(const ModelSpec& spec);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_MODEL_GGUF_METADATA_H_
