#include "engine/data/word_counts.h"

#include <atomic>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "engine/base/status_macros.h"
#include "engine/base/thread_pool.h"
#include "engine/data/documents.h"
#include "engine/data/regex.h"
#include "engine/data/unicode_text.h"
#include "engine/data/utf8.h"

namespace millrace {
namespace {

constexpr size_t kBatchBytes = size_t{16} << 20;
// Text of which no end can be found where a word surely ends is cut anyway.
constexpr size_t kMostPendingBytes = size_t{4} << 20;

using Counts = absl::flat_hash_map<std::string, int64_t>;

// The last place in `text` before which a word ends, whatever follows: a space or the end of a line
// behind a letter. No pattern in use joins those. 0 for none.
size_t LastWordEnd(absl::string_view text) {
  for (size_t at = text.size(); at > 1;) {
    --at;
    if (text[at] != ' ' && text[at] != '\n') continue;
    size_t before = at;
    if (IsLetter(PreviousCharacter(text, &before))) return at;
  }
  return 0;
}

// Reads documents as texts that can be cut into words each by itself.
class TextReader {
 public:
  explicit TextReader(std::vector<DocumentFile> files) : reader_(std::move(files)) {}

  // Replaces `*batch` by texts of about kBatchBytes in all; none at the end.
  absl::Status Next(std::vector<std::string>* batch) {
    batch->clear();
    DocumentReader::Piece piece;
    for (size_t bytes = 0; bytes < kBatchBytes;) {
      MILLRACE_ASSIGN_OR_RETURN(const bool more, reader_.Next(&piece));
      if (!more) return absl::OkStatus();
      std::string text = std::move(pending_);
      text += piece.text;
      pending_.clear();
      if (!piece.ends_document) {
        size_t end = LastWordEnd(text);
        if (end == 0 && text.size() > kMostPendingBytes) end = CharacterBoundary(text, text.size());
        pending_ = text.substr(end);
        text.resize(end);
      }
      bytes += text.size();
      if (!text.empty()) batch->push_back(std::move(text));
    }
    return absl::OkStatus();
  }

  int64_t bytes_read() const { return reader_.bytes_read(); }

 private:
  DocumentReader reader_;
  std::string pending_;  // the begin of a document's next text
};

struct Counter {
  Counts counts;
  TextPieces pieces;
  RegexScratch scratch;
};

void CountInto(absl::string_view text, const PreTokenizer& pre_tokenizer, Counter* counter) {
  pre_tokenizer.Apply(text, true, &counter->pieces, &counter->scratch);
  for (TextRange range : counter->pieces.pieces) {
    ++counter->counts[counter->pieces.text.substr(range.begin, range.end - range.begin)];
  }
}

// Drops the rarest words until there is room for as many again.
void DropRarest(int64_t most_words, Counts* counts, int64_t* dropped_up_to) {
  if (static_cast<int64_t>(counts->size()) <= most_words) return;
  while (static_cast<int64_t>(counts->size()) > most_words / 2) {
    ++*dropped_up_to;
    absl::erase_if(*counts, [&](const auto& word) { return word.second <= *dropped_up_to; });
  }
}

}  // namespace

absl::StatusOr<WordCounts> CountWords(
    const std::string& path, const PreTokenizer& pre_tokenizer, const WordCountOptions& options,
    absl::FunctionRef<absl::Status(int64_t done_bytes, int64_t total_bytes)> progress) {
  MILLRACE_ASSIGN_OR_RETURN(std::vector<DocumentFile> files, ListDocumentFiles(path));
  int64_t total_bytes = 0;
  for (const DocumentFile& file : files) total_bytes += file.size_bytes;
  TextReader reader(std::move(files));
  ThreadPool pool(options.threads);
  std::vector<Counter> counters(static_cast<size_t>(options.threads));
  std::vector<std::string> batch;
  WordCounts result;
  Counts all;
  while (true) {
    MILLRACE_RETURN_IF_ERROR(reader.Next(&batch));
    if (batch.empty()) break;
    std::atomic<size_t> next{0};
    pool.Run([&](int thread) {
      Counter& counter = counters[static_cast<size_t>(thread)];
      for (size_t i; (i = next.fetch_add(1)) < batch.size();) {
        CountInto(batch[i], pre_tokenizer, &counter);
      }
    });
    for (Counter& counter : counters) {
      for (auto& [word, count] : counter.counts) all[word] += count;
      counter.counts.clear();
    }
    DropRarest(options.most_words, &all, &result.dropped_up_to);
    MILLRACE_RETURN_IF_ERROR(progress(reader.bytes_read(), total_bytes));
  }
  result.words.reserve(all.size());
  while (!all.empty()) {
    auto word = all.extract(all.begin());
    result.words.emplace_back(std::move(word.key()), word.mapped());
  }
  return result;
}

}  // namespace millrace
