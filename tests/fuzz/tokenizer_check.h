// What holds for every tokenizer, whatever file it was made from.
#ifndef MILLRACE_TESTS_FUZZ_TOKENIZER_CHECK_H_
#define MILLRACE_TESTS_FUZZ_TOKENIZER_CHECK_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/data/tokenizer.h"
#include "tests/fuzz/fuzz_input.h"

namespace millrace {

// Some texts are encoded to tokens of the vocabulary, and decoded again.
inline void CheckTokenizer(const Tokenizer& tokenizer) {
  constexpr absl::string_view kTexts[] = {
      "",
      "Once upon a time, there were 1234 mills.",
      "  two spaces\n\n\tand\r\nlines   ",
      "don't\xe2\x80\x99ll caf\xc3\xa9 e\xcc\x81 \xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x94\xac",
      "\xe4\xbd\xa0\xe5\xa5\xbd \xd8\xb3\xd9\x84\xd8\xa7\xd9\x85 <|endoftext|></s> [INST]",
      "\xff\xfe ill-formed \xc3 \xed\xa0\x80",
  };
  const int64_t vocabulary = tokenizer.vocab_size();
  std::vector<int32_t> tokens;
  for (absl::string_view sample : kTexts) {
    tokens.clear();
    tokenizer.Encode(sample, &tokens);
    for (int32_t token : tokens) {
      Require(token >= 0 && token < vocabulary, "a token is outside the vocabulary");
    }
    tokenizer.Decode(tokens);
  }
  tokens = {-1, 0, static_cast<int32_t>(vocabulary - 1), static_cast<int32_t>(vocabulary)};
  tokenizer.Decode(tokens);
}

}  // namespace millrace

#endif  // MILLRACE_TESTS_FUZZ_TOKENIZER_CHECK_H_
