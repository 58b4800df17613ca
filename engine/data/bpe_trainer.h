// Trains a byte-level BPE tokenizer on a dataset, for models from scratch.
//
//   MILLRACE_ASSIGN_OR_RETURN(TrainedBpe trained,
//                             TrainBpe("datasets/plays", {.vocab_size = 8192}, progress));
//   MILLRACE_RETURN_IF_ERROR(WriteTokenizer(trained, "tokenizers/plays"));
//
// The tokenizer is that of Hugging Face's BpeTrainer with a ByteLevel pre-tokenizer (no prefix
// space) and the byte alphabet, on the same documents, and the same again on every run.
#ifndef MILLRACE_ENGINE_DATA_BPE_TRAINER_H_
#define MILLRACE_ENGINE_DATA_BPE_TRAINER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace millrace {

struct BpeTrainerOptions {
  // Tokens in all: special ones, 256 bytes, and what merges make. There are fewer where the dataset
  // has too few pairs.
  int64_t vocab_size = 0;
  // Pairs that are there less often are not merged.
  int64_t min_frequency = 2;
  // Ids from 0 on. The first ends documents.
  std::vector<std::string> special_tokens = {"<|endoftext|>"};
  // How text is cut before merging: "gpt2" or "llama3".
  std::string split = "gpt2";
  int threads = 1;
  // WordCountOptions.
  int64_t most_words = 20'000'000;
};

struct BpeTrainerProgress {
  enum class Phase { kReading, kMerging } phase;
  int64_t done, total;  // bytes of the dataset, or tokens
};

struct TrainedBpe {
  std::string tokenizer_json, tokenizer_config_json;
  int64_t vocab_size = 0;
  int64_t words = 0;  // different ones in the dataset
  // Words that are there at most so often may not have been counted (WordCounts).
  int64_t dropped_up_to = 0;
};

// INVALID_ARGUMENT names the option that is wrong, or what is wrong with the dataset (documents.h).
// `progress` is called several times a second; a status that is not OK ends the training with it.
absl::StatusOr<TrainedBpe> TrainBpe(
    const std::string& dataset, const BpeTrainerOptions& options,
    absl::FunctionRef<absl::Status(const BpeTrainerProgress&)> progress);

// Writes tokenizer.json and tokenizer_config.json into `folder`, which is made where it is missing.
absl::Status WriteTokenizer(const TrainedBpe& trained, const std::string& folder);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_DATA_BPE_TRAINER_H_
