#include "engine/data/bpe_merges.h"

#include <algorithm>
#include <array>
#include <queue>

#include "absl/container/flat_hash_map.h"
#include "engine/base/status_macros.h"
#include "engine/data/byte_alphabet.h"

namespace millrace {
namespace {

constexpr int64_t kProgressEvery = 256;

using Pair = uint64_t;
Pair PairOf(int32_t left, int32_t right) {
  return Pair{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}
int32_t LeftOf(Pair pair) { return static_cast<int32_t>(pair >> 32); }
int32_t RightOf(Pair pair) { return static_cast<int32_t>(pair); }

// Indices of words, each once; a word's are given one after the other.
class WordList {
 public:
  void Add(uint32_t word) {
    if (words_.empty() || words_.back() != word) words_.push_back(word);
  }
  const std::vector<uint32_t>& words() const { return words_; }

 private:
  std::vector<uint32_t> words_;
};

class Learner {
 public:
  Learner(std::vector<std::pair<std::string, int64_t>> words, BpeVocabulary* vocabulary)
      : vocabulary_(*vocabulary) {
    std::array<int32_t, 256> ids{};
    for (size_t id = 0; id < vocabulary_.tokens.size(); ++id) {
      ids_[vocabulary_.tokens[id]] = static_cast<int32_t>(id);
      std::string bytes;
      if (AppendBytesOfToken(vocabulary_.tokens[id], &bytes) && bytes.size() == 1) {
        ids[static_cast<unsigned char>(bytes[0])] = static_cast<int32_t>(id);
      }
    }
    // A word of one byte has no pair.
    for (auto& [bytes, count] : words) {
      if (bytes.size() < 2) continue;
      words_.push_back({static_cast<uint32_t>(bytes.size()), symbols_.size(), count});
      for (char byte : bytes) symbols_.push_back(ids[static_cast<unsigned char>(byte)]);
    }
    CountPairs();
  }

  absl::Status Learn(int64_t vocab_size, int64_t min_frequency,
                     absl::FunctionRef<absl::Status(int64_t tokens)> progress) {
    while (static_cast<int64_t>(ids_.size()) < vocab_size && !queue_.empty()) {
      Candidate best = queue_.top();
      queue_.pop();
      const int64_t count = counts_[best.pair];
      if (best.count != count) {
        best.count = count;
        queue_.push(best);
        continue;
      }
      if (count < std::max<int64_t>(min_frequency, 1)) break;
      Merge(best);
      if (vocabulary_.merges.size() % kProgressEvery == 0) {
        MILLRACE_RETURN_IF_ERROR(progress(static_cast<int64_t>(ids_.size())));
      }
    }
    return absl::OkStatus();
  }

 private:
  struct Word {
    uint32_t size;  // symbols
    size_t begin;   // in symbols_
    int64_t count;
  };
  struct Candidate {
    int64_t count;  // when it was put into the queue
    Pair pair;
    uint32_t places;  // index of its words in places_

    // The queue has the greatest on top.
    bool operator<(const Candidate& other) const {
      return count != other.count ? count < other.count : pair > other.pair;
    }
  };

  void CountPairs() {
    for (uint32_t i = 0; i < words_.size(); ++i) {
      const Word& word = words_[i];
      const int32_t* symbols = symbols_.data() + word.begin;
      for (uint32_t k = 0; k + 1 < word.size; ++k) {
        const Pair pair = PairOf(symbols[k], symbols[k + 1]);
        counts_[pair] += word.count;
        new_places_[pair].Add(i);
      }
    }
    QueueNewPairs();
  }

  void QueueNewPairs() {
    for (auto& [pair, places] : new_places_) {
      const int64_t count = counts_[pair];
      if (count <= 0) continue;
      if (free_places_.empty()) {
        free_places_.push_back(static_cast<uint32_t>(places_.size()));
        places_.emplace_back();
      }
      queue_.push({count, pair, free_places_.back()});
      places_[free_places_.back()] = std::move(places);
      free_places_.pop_back();
    }
    new_places_.clear();
  }

  void Merge(const Candidate& best) {
    const int32_t left = LeftOf(best.pair), right = RightOf(best.pair);
    std::string text = vocabulary_.tokens[static_cast<size_t>(left)];
    text += vocabulary_.tokens[static_cast<size_t>(right)];
    const auto [made, is_new] =
        ids_.try_emplace(text, static_cast<int32_t>(vocabulary_.tokens.size()));
    if (is_new) vocabulary_.tokens.push_back(std::move(text));
    vocabulary_.merges.emplace_back(left, right);
    const WordList places = std::move(places_[best.places]);
    places_[best.places] = WordList();
    free_places_.push_back(best.places);
    for (uint32_t word : places.words()) MergeInWord(word, left, right, made->second);
    QueueNewPairs();
  }

  void MergeInWord(uint32_t index, int32_t left, int32_t right, int32_t made) {
    Word& word = words_[index];
    int32_t* symbols = symbols_.data() + word.begin;
    const auto lose = [&](int32_t a, int32_t b) { counts_[PairOf(a, b)] -= word.count; };
    const auto gain = [&](int32_t a, int32_t b) {
      counts_[PairOf(a, b)] += word.count;
      new_places_[PairOf(a, b)].Add(index);
    };
    uint32_t size = 0;  // of what is written anew
    for (uint32_t i = 0; i < word.size; ++i) {
      if (symbols[i] != left || i + 1 == word.size || symbols[i + 1] != right) {
        symbols[size++] = symbols[i];
        continue;
      }
      if (size > 0) {
        lose(symbols[size - 1], left);
        gain(symbols[size - 1], made);
      }
      ++i;
      if (i + 1 < word.size) {
        lose(right, symbols[i + 1]);
        gain(made, symbols[i + 1]);
      }
      symbols[size++] = made;
    }
    word.size = size;
  }

  BpeVocabulary& vocabulary_;
  absl::flat_hash_map<std::string, int32_t> ids_;
  std::vector<Word> words_;
  std::vector<int32_t> symbols_;
  absl::flat_hash_map<Pair, int64_t> counts_;
  std::priority_queue<Candidate> queue_;
  // Words in which pairs of the queue are, or were: each candidate has those that came with it.
  std::vector<WordList> places_;
  std::vector<uint32_t> free_places_;
  absl::flat_hash_map<Pair, WordList> new_places_;
};

}  // namespace

absl::Status LearnMerges(std::vector<std::pair<std::string, int64_t>> words, int64_t vocab_size,
                         int64_t min_frequency,
                         absl::FunctionRef<absl::Status(int64_t tokens)> progress,
                         BpeVocabulary* vocabulary) {
  Learner learner(std::move(words), vocabulary);
  return learner.Learn(vocab_size, min_frequency, progress);
}

}  // namespace millrace
