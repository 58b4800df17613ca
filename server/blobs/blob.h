// What a dataset, a model or a tokenizer of this node is, on disk and in memory: files, and facts
// about their content.
#ifndef MILLRACE_SERVER_BLOBS_BLOB_H_
#define MILLRACE_SERVER_BLOBS_BLOB_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/base/errors.h"

namespace millrace {

// A collection of blobs, in the words of its messages.
struct BlobKind {
  const char* collection;  // `datasets`: names are datasets/{id}, commands `millrace datasets …`
  const char* noun;        // `dataset`: what requests call one
  const char* nothing;     // what empty files are no use for
  ErrorReason invalid;
  ErrorReason not_found;
};

inline constexpr BlobKind kDatasetKind = {"datasets", "dataset", "there is nothing to train on",
                                          ErrorReason::kDatasetInvalid,
                                          ErrorReason::kDatasetNotFound};
inline constexpr BlobKind kModelKind = {"models", "model", "there is no model in them",
                                        ErrorReason::kModelInvalid, ErrorReason::kModelNotFound};
inline constexpr BlobKind kTokenizerKind = {"tokenizers", "tokenizer", "there is no tokenizer",
                                            ErrorReason::kConfigInvalid,
                                            ErrorReason::kTokenizerNotFound};

struct BlobFile {
  // Relative, `/` separated.
  std::string path;
  int64_t size_bytes = 0;
  // Lower-case hexadecimal; empty where files lie elsewhere on the node.
  std::string sha256;
  // Of a file that lies elsewhere: when it was last changed, Unix time.
  int64_t modified_nanos = 0;
  // Bytes received; not part of the manifest, read off the disk.
  int64_t committed_bytes = 0;

  bool operator==(const BlobFile& other) const {
    return path == other.path && size_bytes == other.size_bytes && sha256 == other.sha256 &&
           modified_nanos == other.modified_nanos;
  }
};

struct StoredBlob {
  std::string id;
  // All files are here, hashed and readable; never changes any more.
  bool ready = false;
  std::vector<BlobFile> files;
  // Of all files.
  int64_t size_bytes = 0;
  absl::Time create_time;
  // What its kind knows of the content, once ready: names, none of them a key of the manifest
  // (below), to values.
  nlohmann::ordered_json facts = nlohmann::ordered_json::object();
};

// The manifest of a blob: a JSON object {format: 1, id, state: "UPLOADING" | "READY", create_time
// (RFC 3339), files: [{path, size_bytes, sha256, modified_nanos where it is known}]} and the facts
// beside.
std::string WriteManifest(const StoredBlob& blob);

// DATA_LOSS when `text` is not such an object; `path` is named in the message.
absl::StatusOr<StoredBlob> ReadBlobManifest(absl::string_view text, absl::string_view path);

// The value of a fact, `fallback` where there is none of its type.
int64_t NumberFact(const StoredBlob& blob, const char* name, int64_t fallback = 0);
std::string TextFact(const StoredBlob& blob, const char* name);

}  // namespace millrace

#endif  // MILLRACE_SERVER_BLOBS_BLOB_H_
