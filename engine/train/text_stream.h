// From a text's tokens, one at a time, to what of it can be shown: whole characters, and nothing of
// a stop string.
//
//   TextStream stream(*tokenizer, prompt, {"\n\n"});
//   while (!stream.stopped()) text += stream.Add(NextToken());
//   text += stream.Finish();
//
// What is shown is what decoding prompt and tokens together has beyond the prompt, for tokenizers
// too whose tokens read differently at a text's begin or beside others. But for
// the prompt, only the tokens since the last whole characters are decoded again.
#ifndef MILLRACE_ENGINE_TRAIN_TEXT_STREAM_H_
#define MILLRACE_ENGINE_TRAIN_TEXT_STREAM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "engine/data/tokenizer.h"

namespace millrace {

class TextStream {
 public:
  // `tokenizer` must outlive this; no string of `stop` is empty.
  TextStream(const Tokenizer& tokenizer, absl::Span<const int32_t> prompt,
             std::vector<std::string> stop);

  // The text that can be shown now that `token` follows; may be empty. It is UTF-8: U+FFFD is shown
  // for bytes that are none. Not after stopped().
  std::string Add(int32_t token);
  // Whether a stop string is there: the text ended before it.
  bool stopped() const { return stopped_; }
  // The rest, once no token follows. Nothing when stopped().
  std::string Finish();

 private:
  // What `shown_` tokens of the window and all of them decode to differ by; empty while tokens of
  // the last character are missing, unless none follows.
  std::string NewText(bool last);
  // Takes new text and gives what can be shown of it.
  std::string Show(std::string text, bool last);

  const Tokenizer& tokenizer_;
  const std::vector<std::string> stop_;
  // Last tokens that were shown, for their neighbours' sake, and those that follow.
  std::vector<int32_t> window_;
  size_t shown_ = 0;
  std::string shown_text_;  // what the first `shown_` tokens of the window decode to
  std::string cut_;         // begin of a character
  std::string held_;        // may be the begin of a stop string
  bool stopped_ = false;
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_TRAIN_TEXT_STREAM_H_
