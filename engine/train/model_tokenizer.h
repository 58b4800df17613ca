// The tokenizer that a model brings: of a Hugging Face model directory, or of a GGUF file.
#ifndef MILLRACE_ENGINE_TRAIN_MODEL_TOKENIZER_H_
#define MILLRACE_ENGINE_TRAIN_MODEL_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/data/gguf_tokenizer.h"
#include "engine/data/tokenizer.h"
#include "engine/model/gguf_file.h"
#include "engine/model/gguf_writer.h"

namespace millrace {

// The tokenizer of `path`: a model directory, a tokenizer.json or tokenizer.model
// (engine/data/tokenizer_file.h), or a file that ends in .gguf. Errors name the file.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadModelTokenizer(const std::string& path);

// The tokenizer's metadata of a GGUF file. INVALID_ARGUMENT names the file and the key that is of
// another type than it must be; what is missing is left empty.
absl::StatusOr<GgufTokenizer> ReadGgufTokenizer(const GgufFile& file);

// Writes the files of a model directory that give the tokens of the GGUF file at `path`:
// tokenizer.json and tokenizer_config.json. Every file is synced; the folder is not.
absl::Status WriteGgufTokenizerFiles(const std::string& path, const std::string& folder);

// The tokenizer in a model directory as metadata of a GGUF file (GgufExportOptions), for a model of
// `vocab_size` tokens. INVALID_ARGUMENT names the file and what GGUF has no word for in it.
absl::StatusOr<GgufMetadata> TokenizerMetadata(const std::string& folder, int64_t vocab_size);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_TRAIN_MODEL_TOKENIZER_H_
