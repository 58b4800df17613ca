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
  // general.name.
  std::string name = "model";
  // More metadata: the tokenizer's (tokenizer.ggml.*), without which llama.cpp loads no model.
  GgufMetadata metadata;
};

// Writes `path`. UNIMPLEMENTED for a family other than llama. The file is synced, not renamed.
absl::StatusOr<WrittenFile> WriteGguf(const ModelSpec& spec, const std::vector<SlabLayout>& layouts,
                                      SlabSource source, const std::string& path,
                                      const GgufExportOptions& options);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_MODEL_GGUF_EXPORT_H_
