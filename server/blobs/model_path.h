// Where the models and tokenizers that jobs name lie on this node. The daemon asks it when a job is
// submitted, the worker when it begins.
#ifndef MILLRACE_SERVER_BLOBS_MODEL_PATH_H_
#define MILLRACE_SERVER_BLOBS_MODEL_PATH_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/base/paths.h"
#include "server/blobs/blob.h"

namespace millrace {

// A fact of a model that lies elsewhere on the node: its folder or GGUF file.
inline constexpr char kModelPathFact[] = "path";

// A model that a name stands for.
struct NamedModel {
  // With the step of a checkpoint as a number, whatever it was called by.
  std::string name;
  // The model directory or GGUF file.
  std::string path;
};

// `name` is models/{id} or jobs/{id}/checkpoints/{step}; `field` is where it was given.
// REQUEST_INVALID for another; MODEL_NOT_FOUND, CHECKPOINT_NOT_FOUND; MODEL_INVALID for one that is
// not READY; FAILED_PRECONDITION MODEL_CHANGED for a registered one whose files are others by now.
absl::StatusOr<NamedModel> FindModel(const DataPaths& paths, absl::string_view field,
                                     absl::string_view name);

// The file or folder of a tokenizer: of tokenizers/{id}, or of a model that FindModel finds.
// TOKENIZER_NOT_FOUND; what FindModel says.
absl::StatusOr<std::string> FindTokenizer(const DataPaths& paths, absl::string_view field,
                                          absl::string_view name);

// The model directory or GGUF file of a READY model whose own files lie in `files_folder`.
std::string ModelPathOf(const StoredBlob& model, const std::string& files_folder);

// Size and time of change of the file `path`. Follows links.
absl::StatusOr<BlobFile> StatModelFile(const std::string& path, const std::string& name);

}  // namespace millrace

#endif  // MILLRACE_SERVER_BLOBS_MODEL_PATH_H_
