#include "engine/data/byte_tokenizer.h"

namespace millrace {

void ByteTokenizer::Encode(absl::string_view text, std::vector<int32_t>* tokens) const {
  const size_t begin = tokens->size();
  tokens->resize(begin + text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    (*tokens)[begin + i] = static_cast<unsigned char>(text[i]);
  }
}

std::string ByteTokenizer::Decode(absl::Span<const int32_t> tokens) const {
  std::string text;
  for (int32_t token : tokens) {
    if (token >= 0 && token < 256) text.push_back(static_cast<char>(token));
  }
  return text;
}

}  // namespace millrace
