// Writes a model as a GGUF file that llama.cpp loads.
#ifndef MILLRACE_ENGINE_MODEL_GGUF_EXPORT_H_
#define MILLRACE_ENGINE_MODEL_GGUF_EXPORT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/gguf_quants.h"
#include "engine/model/gguf_writer.h"
#include "engine/model/model_directory.h"
#include "engine/model/model_spec.h"
#include "engine/model/slab_layout.h"

namespace millrace {

struct GgufExportOptions {
  // Of matrices: F32, F16, BF16 or Q8_0. Vectors are F32 always, as llama.cpp wants them; a matrix
  // whose rows are no whole blocks of Q8_0 is F16.
  GgmlType type = GgmlType::kBF16;
  // general.name; left empty where llama.cpp would take the model for another by it (Phi-3).
  std::string name = "model";
  // More metadata: the tokenizer's (tokenizer.ggml.*), without which llama.cpp loads no model.
  GgufMetadata metadata;
};

// Writes `path`, of a model of the families llama, mistral, qwen2, qwen3, gemma2, gemma3_text, phi3
// or gpt2. UNIMPLEMENTED for others, and names what of a model has no place in such a file
// (gguf_metadata.h). The file is synced, not renamed.
//
// Read back, F32 and BF16 tensors are bit-identical but for the norms of Gemma: files have them
// plus one, rounded to f32. llama.cpp knows no windows of Mistral or Phi 3: it computes the same
// for texts that are no longer.
absl::StatusOr<WrittenFile> WriteGguf(const ModelSpec& spec, const std::vector<SlabLayout>& layouts,
                                      SlabSource source, const std::string& path,
                                      const GgufExportOptions& options);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_MODEL_GGUF_EXPORT_H_
