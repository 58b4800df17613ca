// A Hugging Face model directory: config.json, and the weights in model.safetensors or, above a
// size, in model-00001-of-0000N.safetensors with model.safetensors.index.json. What reads
// one reads a GGUF file too, wherever a path is a file's.
//
// Parameters come from and go to their owner through callbacks, a run of elements of one slab at a
// time, so that no second copy of the model is ever in memory: at most one tensor of it when it is
// written, a few MiB a thread when it is read.
#ifndef MILLRACE_ENGINE_MODEL_MODEL_DIRECTORY_H_
#define MILLRACE_ENGINE_MODEL_MODEL_DIRECTORY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/base/dtype.h"
#include "engine/base/field_problem.h"
#include "engine/model/model_spec.h"
#include "engine/model/slab_layout.h"
#include "engine/model/weight_reader.h"

namespace millrace {

// Gives elements [offset, offset + out.size()) of the slab of `unit` as f32. Written as bf16 they
// are rounded to nearest even, which leaves values that are bf16 already as they are.
using SlabSource =
    absl::FunctionRef<absl::Status(int64_t unit, int64_t offset, absl::Span<float> out)>;

struct ModelDirectoryOptions {
  DType dtype = DType::kBF16;
  // Bytes of tensors in one file; a larger tensor gets a file of its own.
  int64_t max_file_bytes = 5'000'000'000;
  // The tokenizer's, for config.json (WriteConfigOptions).
  std::optional<int64_t> end_of_document, begin_of_document;
};

struct WrittenFile {
  std::string name;  // within the folder
  int64_t size_bytes = 0;
  std::string sha256;
};

// Writes into `folder`, which must exist. Every file is synced; the folder is not, and nothing is
// renamed: whoever makes a whole checkpoint of it does that once. Returns the files written.
absl::StatusOr<std::vector<WrittenFile>> WriteModelDirectory(
    const ModelSpec& spec, const std::vector<SlabLayout>& layouts, SlabSource source,
    const std::string& folder, const ModelDirectoryOptions& options = {});

// The spec of `path`/config.json, or of the metadata of the GGUF file `path`.
// `notes`, where given, get what training leaves out: see ParseModelConfig.
absl::StatusOr<ModelSpec> ReadModelDirectoryConfig(const std::string& path,
                                                   std::vector<FieldProblem>* notes = nullptr);

// Gives all parameters of `layouts` to `sink`, each element once (padding is left alone), after all
// that can be checked without reading them has been. INVALID_ARGUMENT names the file and the tensor
// that is missing, of the wrong shape or type, or unknown. The head of a model with tied embeddings
// may be there if it equals them.
absl::Status ReadModelDirectory(const ModelSpec& spec, const std::vector<SlabLayout>& layouts,
                                const std::string& path, SlabSink sink,
                                const ReadOptions& options = {});

}  // namespace millrace

#endif  // MILLRACE_ENGINE_MODEL_MODEL_DIRECTORY_H_
