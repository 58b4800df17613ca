// Writes the tokenizer of a model directory as a GGUF file without tensors, for
// tests/golden/compare_gguf_tokenizers.py.
//
//   write_vocabulary FOLDER VOCAB_SIZE PATH
#include <cstdlib>
#include <iostream>

#include "engine/base/status_macros.h"
#include "engine/train/model_tokenizer.h"

namespace {

absl::Status Write(const char* folder, int64_t vocab_size, const char* path) {
  using millrace::GgufValue;
  MILLRACE_ASSIGN_OR_RETURN(millrace::GgufMetadata metadata,
                            millrace::TokenizerMetadata(folder, vocab_size));
  metadata.emplace(metadata.begin(), "general.architecture", GgufValue::String("llama"));
  MILLRACE_ASSIGN_OR_RETURN(millrace::GgufWriter writer,
                            millrace::GgufWriter::Create(path, metadata, {}));
  return writer.Finish();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const absl::Status status = Write(argv[1], std::atoll(argv[2]), argv[3]);
  if (!status.ok()) std::cerr << status << "\n";
  return status.ok() ? 0 : 1;
}
