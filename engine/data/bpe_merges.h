// Which neighbours byte pair encoding joins, learned from how often words are there (Sennrich et
// al., 2016): again and again the pair that is the most frequent.
#ifndef MILLRACE_ENGINE_DATA_BPE_MERGES_H_
#define MILLRACE_ENGINE_DATA_BPE_MERGES_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace millrace {

// A vocabulary and the merges that make it, in their order, by the ids of their parts.
struct BpeVocabulary {
  std::vector<std::string> tokens;  // by id, as they are written in files
  std::vector<std::pair<int32_t, int32_t>> merges;
};

// Merges until there are `vocab_size` tokens or no pair is there `min_frequency` times; of pairs
// that are equally frequent, that of the smaller ids is first. These are the merges of Hugging
// Face's BpeTrainer, also where it makes a token in two ways: the later ones of those count again
// from what the earlier left.
//
// `vocabulary` has the special tokens and the 256 of the byte alphabet; words are bytes.
// `progress` is called every few hundred merges with how many tokens there are; a status that is
// not OK ends the learning with it.
absl::Status LearnMerges(std::vector<std::pair<std::string, int64_t>> words, int64_t vocab_size,
                         int64_t min_frequency,
                         absl::FunctionRef<absl::Status(int64_t tokens)> progress,
                         BpeVocabulary* vocabulary);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_DATA_BPE_MERGES_H_
