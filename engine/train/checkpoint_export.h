// A checkpoint, or any model directory with its tokenizer, as a file of another program's format.
#ifndef MILLRACE_ENGINE_TRAIN_CHECKPOINT_EXPORT_H_
#define MILLRACE_ENGINE_TRAIN_CHECKPOINT_EXPORT_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "engine/model/gguf_quants.h"
#include "engine/model/model_directory.h"

namespace millrace {

struct GgufCheckpointOptions {
  // Of matrices; see GgufExportOptions.
  GgmlType type = GgmlType::kBF16;
  // general.name.
  std::string name;
  // Bytes written, about, of about so many; called every few megabytes.
  std::function<void(int64_t done_bytes, int64_t total_bytes)> on_progress;
};

// Writes `path`, with the tokenizer of `folder`; it is synced, not renamed. UNIMPLEMENTED names
// what the format has no word for in the model or its tokenizer. Takes the memory of one tensor.
absl::StatusOr<WrittenFile> ExportGguf(const std::string& folder, const std::string& path,
                                       const GgufCheckpointOptions& options);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_TRAIN_CHECKPOINT_EXPORT_H_
