// The tokenizers of this node (blob_store.h), trained on its datasets.
#ifndef MILLRACE_SERVER_BLOBS_TOKENIZER_STORE_H_
#define MILLRACE_SERVER_BLOBS_TOKENIZER_STORE_H_

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "server/base/errors.h"
#include "server/blobs/blob.h"
#include "server/blobs/blob_store.h"

namespace millrace {

// Facts of a tokenizer.
namespace tokenizer_fact {
inline constexpr char kVocab[] = "vocab_size";
inline constexpr char kDataset[] = "dataset";  // the name
}  // namespace tokenizer_fact

// The file of a tokenizer that clients get.
inline constexpr char kTokenizerFile[] = "tokenizer.json";

// Tokenizers are added (BlobStore::Add), never uploaded. `kind` and `inspect` need not be given.
inline absl::StatusOr<std::unique_ptr<BlobStore>> OpenTokenizers(BlobStore::Options options) {
  options.kind = &kTokenizerKind;
  options.inspect = [](const std::string&) -> absl::StatusOr<nlohmann::ordered_json> {
    return MakeError(ErrorReason::kConfigInvalid, "tokenizers are trained, not uploaded");
  };
  return BlobStore::Open(std::move(options));
}

}  // namespace millrace

#endif  // MILLRACE_SERVER_BLOBS_TOKENIZER_STORE_H_
