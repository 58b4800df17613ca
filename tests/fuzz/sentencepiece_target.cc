// A tokenizer.model: what is taken for a tokenizer works.
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/strings/string_view.h"
#include "engine/data/sentencepiece_file.h"
#include "engine/data/sentencepiece_tokenizer.h"
#include "tests/fuzz/tokenizer_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  absl::StatusOr<SentencePieceModel> model =
      ParseSentencePieceModel(absl::string_view(reinterpret_cast<const char*>(data), size));
  if (!model.ok()) return 0;
  const absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer =
      MakeSentencePieceTokenizer(*std::move(model), "fuzz", "");
  if (tokenizer.ok()) CheckTokenizer(**tokenizer);
  return 0;
}
