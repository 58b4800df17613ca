// How often each word is in a dataset, where a word is what a pre-tokenizer cuts text into.
#ifndef MILLRACE_ENGINE_DATA_WORD_COUNTS_H_
#define MILLRACE_ENGINE_DATA_WORD_COUNTS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/data/pre_tokenizer.h"

namespace millrace {

struct WordCounts {
  // Each word once, in no order.
  std::vector<std::pair<std::string, int64_t>> words;
  // Words that were met at most so often may be missing: there were too many to hold.
  int64_t dropped_up_to = 0;
};

struct WordCountOptions {
  int threads = 1;
  // Different words to hold; about 80 bytes each. When there are more, the rarest are dropped.
  int64_t most_words = 20'000'000;
};

// Counts the words of the dataset at `path` (documents.h). The counts do not depend on the number
// of threads, nor on how long documents are read in pieces: they are cut where no word goes across.
// `progress` is called every few megabytes with what is done of the dataset's bytes; a status that
// is not OK ends the counting with it.
absl::StatusOr<WordCounts> CountWords(
    const std::string& path, const PreTokenizer& pre_tokenizer, const WordCountOptions& options,
    absl::FunctionRef<absl::Status(int64_t done_bytes, int64_t total_bytes)> progress);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_DATA_WORD_COUNTS_H_
