// What a dataset is, on disk and in memory.
#ifndef MILLRACE_SERVER_BLOBS_DATASET_H_
#define MILLRACE_SERVER_BLOBS_DATASET_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace millrace {

struct DatasetFile {
  // Relative, `/` separated.
  std::string path;
  int64_t size_bytes = 0;
  // Lower-case hexadecimal.
  std::string sha256;
  // Bytes received; not part of the manifest, read off the disk.
  int64_t committed_bytes = 0;

  bool operator==(const DatasetFile& other) const {
    return path == other.path && size_bytes == other.size_bytes && sha256 == other.sha256;
  }
};

struct Dataset {
  std::string id;
  // All files are here, hashed and readable; never changes any more.
  bool ready = false;
  std::vector<DatasetFile> files;
  // Of all files.
  int64_t size_bytes = 0;
  // 0 until ready.
  int64_t document_count = 0;
  absl::Time create_time;
};

// The manifest of a dataset: a JSON object {format: 1, id, state: "UPLOADING" | "READY",
// create_time (RFC 3339), document_count, files: [{path, size_bytes, sha256}]}.
std::string WriteDatasetManifest(const Dataset& dataset);

// DATA_LOSS when `text` is not such an object; `path` is named in the message.
absl::StatusOr<Dataset> ReadDatasetManifest(absl::string_view text, absl::string_view path);

}  // namespace millrace

#endif  // MILLRACE_SERVER_BLOBS_DATASET_H_
