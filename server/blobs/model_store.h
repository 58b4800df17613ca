// The models of this node (blob_store.h): Hugging Face model directories and GGUF files, sent here
// or registered where they lie.
#ifndef MILLRACE_SERVER_BLOBS_MODEL_STORE_H_
#define MILLRACE_SERVER_BLOBS_MODEL_STORE_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/blobs/blob.h"
#include "server/blobs/blob_store.h"

namespace millrace {

// Facts of a READY model, beside kModelPathFact (model_path.h).
namespace model_fact {
inline constexpr char kFormat[] = "model_format";  // kSafetensors or kGguf
inline constexpr char kSafetensors[] = "safetensors";
inline constexpr char kGguf[] = "gguf";
inline constexpr char kFamily[] = "family";
inline constexpr char kParameters[] = "parameter_count";
inline constexpr char kVocab[] = "vocab_size";
inline constexpr char kContext[] = "context_length";
inline constexpr char kLayers[] = "layer_count";
inline constexpr char kHidden[] = "hidden_size";
inline constexpr char kWeightType[] = "weight_type";
inline constexpr char kTokenizer[] = "tokenizer";
inline constexpr char kNotes[] = "notes";  // a list
}  // namespace model_fact

// Safe for use by several threads.
class ModelStore {
 public:
  struct Options {
    // `kind` and `inspect` need not be given.
    BlobStore::Options blobs;
    // Folders of this node below which models may be registered.
    std::vector<std::string> model_dirs;
  };

  static absl::StatusOr<std::unique_ptr<ModelStore>> Open(Options options);

  // As BlobStore, and of files that make a model: one GGUF file, or config.json, safetensors and
  // what goes with them. INVALID_ARGUMENT MODEL_INVALID names another file.
  absl::StatusOr<StoredBlob> Create(const std::string& id, std::vector<BlobFile> files);

  // Makes the folder or GGUF file `path` of this node a model, once its config and the headers of
  // its tensors have been read; only sizes and times of its files are kept. The files, links
  // followed, must lie below `model_dirs`, else PERMISSION_DENIED PATH_NOT_ALLOWED.
  // INVALID_ARGUMENT MODEL_INVALID | MODEL_UNSUPPORTED; ALREADY_EXISTS ID_TAKEN.
  absl::StatusOr<StoredBlob> Register(const std::string& id, const std::string& path);

  // For all else.
  BlobStore& blobs() { return *blobs_; }
  const BlobStore& blobs() const { return *blobs_; }

 private:
  explicit ModelStore(std::vector<std::string> model_dirs) : model_dirs_(std::move(model_dirs)) {}
  // Where `path` is, links followed; refuses what does not lie below `model_dirs`.
  absl::StatusOr<std::string> RealPath(const std::string& path) const;

  const std::vector<std::string> model_dirs_;
  std::unique_ptr<BlobStore> blobs_;
};

}  // namespace millrace

#endif  // MILLRACE_SERVER_BLOBS_MODEL_STORE_H_
