// A tokenizer.json: what is taken for a tokenizer encodes any text and decodes it again.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/data/tokenizer_file.h"
#include "tests/fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  constexpr absl::string_view kTexts[] = {
      "",
      "Once upon a time, there were 1234 mills.",
      "  two spaces\n\n\tand\r\nlines   ",
      "don't\xe2\x80\x99ll caf\xc3\xa9 e\xcc\x81 \xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x94\xac",
      "\xe4\xbd\xa0\xe5\xa5\xbd \xd8\xb3\xd9\x84\xd8\xa7\xd9\x85 <|endoftext|></s> [INST]",
      "\xff\xfe ill-formed \xc3 \xed\xa0\x80",
  };
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = ParseTokenizer(text, "fuzz", "");
  if (!tokenizer.ok()) return 0;
  const int64_t vocabulary = (*tokenizer)->vocab_size();
  std::vector<int32_t> tokens;
  for (absl::string_view sample : kTexts) {
    tokens.clear();
    (*tokenizer)->Encode(sample, &tokens);
    for (int32_t token : tokens) {
      Require(token >= 0 && token < vocabulary, "a token is outside the vocabulary");
    }
    (*tokenizer)->Decode(tokens);
  }
  tokens = {-1, 0, static_cast<int32_t>(vocabulary - 1), static_cast<int32_t>(vocabulary)};
  (*tokenizer)->Decode(tokens);
  return 0;
}
