#include "engine/data/bpe_trainer.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/file.h"
#include "engine/base/status_macros.h"
#include "engine/data/bpe_merges.h"
#include "engine/data/byte_alphabet.h"
#include "engine/data/gguf_pre_tokenizers.h"
#include "engine/data/pre_tokenizer.h"
#include "engine/data/unicode_text.h"
#include "engine/data/word_counts.h"
#include "nlohmann/json.hpp"

namespace millrace {
namespace {

using nlohmann::json;

constexpr int64_t kMostTokens = int64_t{1} << 24;
constexpr size_t kMostSpecialBytes = 1024;

// Ways to cut text by the name of the option and by that in GGUF files, which can hold them all.
struct Split {
  absl::string_view name, gguf_name;
};
constexpr Split kSplits[] = {{"gpt2", "gpt-2"}, {"llama3", "dbrx"}};

absl::StatusOr<const GgufPreTokenizer*> FindSplit(absl::string_view name) {
  std::string known;
  for (const Split& split : kSplits) {
    if (split.name == name) return FindGgufPreTokenizer(split.gguf_name);
    absl::StrAppend(&known, known.empty() ? "" : ", ", split.name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("split: \"", name, "\" is not known; choose one of: ", known));
}

absl::Status CheckOptions(const BpeTrainerOptions& options) {
  if (options.special_tokens.empty()) {
    return absl::InvalidArgumentError("special_tokens: are none; name one that ends documents");
  }
  std::set<absl::string_view> seen;
  std::string storage;
  for (const std::string& token : options.special_tokens) {
    if (token.empty() || token.size() > kMostSpecialBytes ||
        WellFormed(token, &storage).data() != token.data()) {
      return absl::InvalidArgumentError(
          absl::StrCat("special_tokens: each must be UTF-8 of 1 to ", kMostSpecialBytes, " bytes"));
    }
    if (!seen.insert(token).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("special_tokens: \"", token, "\" is there twice"));
    }
  }
  const int64_t least = 256 + static_cast<int64_t>(options.special_tokens.size());
  if (options.vocab_size < least || options.vocab_size > kMostTokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("vocab_size: ", options.vocab_size, " must be ", least,
                     " (the 256 bytes and the special tokens) to ", kMostTokens));
  }
  if (options.min_frequency < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("min_frequency: ", options.min_frequency, " must not be negative"));
  }
  if (options.threads < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("threads: ", options.threads, " must be at least 1"));
  }
  return absl::OkStatus();
}

// The special tokens, then the byte alphabet in the order of its characters.
BpeVocabulary FirstTokens(const std::vector<std::string>& special_tokens) {
  BpeVocabulary vocabulary;
  vocabulary.tokens = special_tokens;
  const std::set<std::string> special(special_tokens.begin(), special_tokens.end());
  constexpr char32_t kCharacters = 256 + 68;
  for (char32_t c = 0; c < kCharacters; ++c) {
    std::string character, bytes;
    AppendCharacter(c, &character);
    if (AppendBytesOfToken(character, &bytes) && special.count(character) == 0) {
      vocabulary.tokens.push_back(std::move(character));
    }
  }
  return vocabulary;
}

std::string TokenizerJson(const BpeTrainerOptions& options, const GgufPreTokenizer& split,
                          const BpeVocabulary& vocabulary) {
  json added = json::array();
  for (size_t id = 0; id < options.special_tokens.size(); ++id) {
    added.push_back({{"id", id},
                     {"content", options.special_tokens[id]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  json vocab = json::object(), merges = json::array();
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) vocab[vocabulary.tokens[id]] = id;
  const auto token = [&](int32_t id) { return vocabulary.tokens[static_cast<size_t>(id)]; };
  for (const auto& [left, right] : vocabulary.merges) {
    merges.push_back({token(left), token(right)});
  }
  const json decoder = {{"type", "ByteLevel"},
                        {"add_prefix_space", true},
                        {"trim_offsets", true},
                        {"use_regex", true}};
  const json file = {{"version", "1.0"},
                     {"truncation", nullptr},
                     {"padding", nullptr},
                     {"added_tokens", std::move(added)},
                     {"normalizer", NormalizerOf(split)},
                     {"pre_tokenizer", PreTokenizerOf(split)},
                     {"post_processor", nullptr},
                     {"decoder", decoder},
                     {"model",
                      {{"type", "BPE"},
                       {"dropout", nullptr},
                       {"unk_token", nullptr},
                       {"continuing_subword_prefix", nullptr},
                       {"end_of_word_suffix", nullptr},
                       {"fuse_unk", false},
                       {"byte_fallback", false},
                       {"ignore_merges", split.ignore_merges},
                       {"vocab", std::move(vocab)},
                       {"merges", std::move(merges)}}}};
  return file.dump(1) + "\n";
}

}  // namespace

absl::StatusOr<TrainedBpe> TrainBpe(
    const std::string& dataset, const BpeTrainerOptions& options,
    absl::FunctionRef<absl::Status(const BpeTrainerProgress&)> progress) {
  using Phase = BpeTrainerProgress::Phase;
  MILLRACE_RETURN_IF_ERROR(CheckOptions(options));
  MILLRACE_ASSIGN_OR_RETURN(const GgufPreTokenizer* split, FindSplit(options.split));
  MILLRACE_ASSIGN_OR_RETURN(const PreTokenizer pre_tokenizer,
                            PreTokenizer::Parse(PreTokenizerOf(*split)));
  MILLRACE_ASSIGN_OR_RETURN(
      WordCounts counts, CountWords(dataset, pre_tokenizer,
                                    {.threads = options.threads, .most_words = options.most_words},
                                    [&](int64_t done, int64_t total) {
                                      return progress({Phase::kReading, done, total});
                                    }));
  if (counts.words.empty()) {
    return absl::InvalidArgumentError("the dataset has no text in it; add some");
  }
  TrainedBpe trained;
  trained.words = static_cast<int64_t>(counts.words.size());
  trained.dropped_up_to = counts.dropped_up_to;
  BpeVocabulary vocabulary = FirstTokens(options.special_tokens);
  MILLRACE_RETURN_IF_ERROR(LearnMerges(
      std::move(counts.words), options.vocab_size, options.min_frequency,
      [&](int64_t tokens) {
        return progress({Phase::kMerging, tokens, options.vocab_size});
      },
      &vocabulary));
  trained.vocab_size = static_cast<int64_t>(vocabulary.tokens.size());
  trained.tokenizer_json = TokenizerJson(options, *split, vocabulary);
  const json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                       {"eos_token", options.special_tokens[0]},
                       {"clean_up_tokenization_spaces", false}};
  trained.tokenizer_config_json = config.dump(2) + "\n";
  return trained;
}

absl::Status WriteTokenizer(const TrainedBpe& trained, const std::string& folder) {
  MILLRACE_RETURN_IF_ERROR(MakeFolderDurably(folder));
  // The one that makes it a tokenizer is last.
  MILLRACE_RETURN_IF_ERROR(WriteFileAtomically(absl::StrCat(folder, "/tokenizer_config.json"),
                                               trained.tokenizer_config_json));
  return WriteFileAtomically(absl::StrCat(folder, "/tokenizer.json"), trained.tokenizer_json);
}

}  // namespace millrace
