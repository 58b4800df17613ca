// A tokenizer.json: what is taken for a tokenizer works, and is exported or refused.
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/strings/string_view.h"
#include "engine/data/gguf_tokenizer.h"
#include "engine/data/tokenizer_file.h"
#include "tests/fuzz/tokenizer_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = ParseTokenizer(text, "fuzz", "");
  if (!tokenizer.ok()) return 0;
  CheckTokenizer(**tokenizer);
  const absl::StatusOr<GgufTokenizer> exported =
      GgufTokenizerOf(text, "", (*tokenizer)->vocab_size());
  if (exported.ok()) FilesOfGgufTokenizer(*exported).IgnoreError();
  return 0;
}
