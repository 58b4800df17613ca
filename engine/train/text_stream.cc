#include "engine/train/text_stream.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/data/unicode_text.h"

namespace millrace {
namespace {

// A character has no more tokens.
constexpr size_t kMostTokensOfCharacter = 4;
constexpr absl::string_view kReplacement = "\xef\xbf\xbd";

// Bytes at the end of `text` that may be the begin of a character.
size_t CutBytes(absl::string_view text) {
  for (size_t bytes = 1; bytes <= std::min<size_t>(3, text.size()); ++bytes) {
    const auto byte = static_cast<unsigned char>(text[text.size() - bytes]);
    if ((byte & 0xc0) == 0x80) continue;
    const size_t length = byte < 0xc2 || byte > 0xf4 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
    return length > bytes ? bytes : 0;
  }
  return 0;
}

// Length of the longest end of `text` that `stop` begins with, all of `stop` excluded.
size_t Overlap(absl::string_view text, absl::string_view stop) {
  size_t length = std::min(text.size(), stop.size() - 1);
  while (length > 0 && !absl::EndsWith(text, stop.substr(0, length))) --length;
  return length;
}

}  // namespace

TextStream::TextStream(const Tokenizer& tokenizer, absl::Span<const int32_t> prompt,
                       std::vector<std::string> stop)
    : tokenizer_(tokenizer),
      stop_(std::move(stop)),
      window_(prompt.begin(), prompt.end()),
      shown_(window_.size()),
      shown_text_(tokenizer.Decode(prompt)) {}

std::string TextStream::Add(int32_t token) {
  window_.push_back(token);
  return Show(NewText(/*last=*/false), /*last=*/false);
}

std::string TextStream::Finish() {
  return stopped_ ? "" : Show(NewText(/*last=*/true), /*last=*/true);
}

std::string TextStream::NewText(bool last) {
  if (shown_ == window_.size()) return "";
  std::string all = tokenizer_.Decode(window_);
  const absl::Span<const int32_t> added = absl::MakeConstSpan(window_).subspan(shown_);
  // Bytes as tokens of their own may be waiting for the rest of their character.
  if (!last && absl::EndsWith(all, kReplacement) && added.size() < kMostTokensOfCharacter) {
    return "";
  }
  if (all == shown_text_) {
    // Nothing is seen of the token, nor by its neighbours; but a first one may stand for a space
    // that texts do not begin with.
    if (!all.empty()) window_.pop_back();
    shown_ = window_.size();
    return "";
  }
  // What was shown stays, also where the tokenizer now reads it in another way.
  std::string text = absl::StartsWith(all, shown_text_) ? all.substr(shown_text_.size())
                                                        : tokenizer_.Decode(added);
  window_.erase(window_.begin(), window_.begin() + static_cast<ptrdiff_t>(shown_));
  shown_ = window_.size();
  shown_text_ = tokenizer_.Decode(window_);
  return text;
}

std::string TextStream::Show(std::string text, bool last) {
  text.insert(0, std::exchange(cut_, ""));
  if (!last) {
    const size_t whole = text.size() - CutBytes(text);
    cut_ = text.substr(whole);
    text.resize(whole);
  }
  std::string storage;
  absl::StrAppend(&held_, WellFormed(text, &storage));

  size_t end = std::string::npos;
  for (const std::string& stop : stop_) end = std::min(end, held_.find(stop));
  if (end != std::string::npos) {
    stopped_ = true;
    held_.resize(end);
    return std::exchange(held_, "");
  }
  size_t kept = 0;
  if (!last) {
    for (const std::string& stop : stop_) kept = std::max(kept, Overlap(held_, stop));
  }
  std::string shown = held_.substr(0, held_.size() - kept);
  held_.erase(0, shown.size());
  return shown;
}

}  // namespace millrace
