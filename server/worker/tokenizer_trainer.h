// Trains tokenizers on the node's datasets, each in a process of its own.
#ifndef MILLRACE_SERVER_WORKER_TOKENIZER_TRAINER_H_
#define MILLRACE_SERVER_WORKER_TOKENIZER_TRAINER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/blobs/blob_store.h"

namespace millrace {

// Safe for use by several threads; trains one at a time.
class TokenizerTrainer {
 public:
  struct Options {
    std::string worker_program;
    // Where tokenizers lie and are made.
    std::string folder;
    // Outlive the trainer.
    const BlobStore* datasets = nullptr;
    BlobStore* tokenizers = nullptr;
  };

  struct Request {
    std::string id;
    std::string dataset;  // its name
    int64_t vocab_size = 0;
    int64_t min_frequency = 0;                // 0: the engine's default
    std::vector<std::string> special_tokens;  // empty: the engine's default
    std::string split;                        // empty: the engine's default
    std::function<void(const std::string& phase, int64_t done, int64_t total)> on_progress;
    std::function<bool()> cancelled;
  };

  explicit TokenizerTrainer(Options options) : options_(std::move(options)) {}

  // The tokenizer, once it lasts; whatever ends this before leaves nothing. ALREADY_EXISTS
  // ID_TAKEN; NOT_FOUND DATASET_NOT_FOUND; INVALID_ARGUMENT CONFIG_INVALID; RESOURCE_EXHAUSTED
  // DISK_FULL; UNAVAILABLE BUSY while another is being trained.
  absl::StatusOr<StoredBlob> Train(const Request& request);

 private:
  absl::StatusOr<StoredBlob> Make(const Request& request, const std::string& dataset_id,
                                  const std::string& folder);

  const Options options_;
  std::atomic<bool> training_ = false;
};

}  // namespace millrace

#endif  // MILLRACE_SERVER_WORKER_TOKENIZER_TRAINER_H_
