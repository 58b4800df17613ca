// The files of a model on disk: a Hugging Face model directory, or one GGUF file.
//
//   MILLRACE_ASSIGN_OR_RETURN(ModelWeights weights, ModelWeights::Open(path));
//   std::optional<StoredTensor> norm = weights.Take("model.norm.weight");
#ifndef MILLRACE_ENGINE_MODEL_MODEL_FILES_H_
#define MILLRACE_ENGINE_MODEL_MODEL_FILES_H_

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/model/stored_tensor.h"

namespace millrace {

inline constexpr absl::string_view kConfigName = "config.json";
inline constexpr absl::string_view kWeightsName = "model.safetensors";
inline constexpr absl::string_view kIndexName = "model.safetensors.index.json";

// Whether `path` is a file, which then has to be GGUF.
bool IsGgufPath(const std::string& path);

// The tensors of a model by the names of a model directory: those of model.safetensors, or of the
// files that its index names; or of a GGUF file. What an index names must lie in the folder. Files
// may be links, since those of the hub's caches are, but what an index names may not lead out of
// the folder, the one where the index really is, or such a cache (NAME/snapshots/REVISION leads to
// NAME/blobs).
class ModelWeights {
 public:
  // Checks all headers. INVALID_ARGUMENT names the file, and the tensor where one is to blame;
  // NOT_FOUND where there are no weights.
  static absl::StatusOr<ModelWeights> Open(const std::string& path);

  // Takes the tensor `name`, or the one that has it without the base model's prefix ("model."), as
  // models are saved without a head. Nothing when there is none.
  std::optional<StoredTensor> Take(absl::string_view name);

  // What has not been taken.
  const std::map<std::string, StoredTensor, std::less<>>& left() const { return tensors_; }

 private:
  std::map<std::string, StoredTensor, std::less<>> tensors_;
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_MODEL_MODEL_FILES_H_
