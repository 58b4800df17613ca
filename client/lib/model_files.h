// Which files of a folder make a model.
#ifndef MILLRACE_CLIENT_LIB_MODEL_FILES_H_
#define MILLRACE_CLIENT_LIB_MODEL_FILES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace millrace {

struct ModelFiles {
  // Sent: names in the folder, or that of the file.
  std::vector<std::string> files;
  // What else there is (weights in other formats, images, licences), which no model needs.
  std::vector<std::string> left_out;
};

// Of `path`, a Hugging Face model directory or a GGUF file: config.json, the weights in safetensors
// (where there is an index, those that it names), the tokenizer's files and generation_config.json.
// Hidden files and folders are in neither list. NotFound; InvalidArgument says what is missing to a
// model, and what to do about it.
absl::StatusOr<ModelFiles> ListModelFiles(const std::string& path);

// An id for a model at `path`: its last name, in the letters that ids have. Empty when none of them
// is left.
std::string ModelIdFor(const std::string& path);

}  // namespace millrace

#endif  // MILLRACE_CLIENT_LIB_MODEL_FILES_H_
