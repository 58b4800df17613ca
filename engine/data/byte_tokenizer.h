// One token a byte, and one more that ends a document: 257 tokens for any text there is.
#ifndef MILLRACE_ENGINE_DATA_BYTE_TOKENIZER_H_
#define MILLRACE_ENGINE_DATA_BYTE_TOKENIZER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "engine/data/tokenizer.h"

namespace millrace {

class ByteTokenizer : public Tokenizer {
 public:
  std::string name() const override { return "byte"; }
  int64_t vocab_size() const override { return 257; }
  int32_t end_of_document() const override { return 256; }

  void Encode(absl::string_view text, std::vector<int32_t>* tokens) const override;
  std::string Decode(absl::Span<const int32_t> tokens) const override;
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_DATA_BYTE_TOKENIZER_H_
