// What can be told of a model on disk without reading its weights, and whether they are all there.
//
//   MILLRACE_ASSIGN_OR_RETURN(ModelSummary summary, SummarizeModel("models/smol"));
#ifndef MILLRACE_ENGINE_MODEL_MODEL_SUMMARY_H_
#define MILLRACE_ENGINE_MODEL_MODEL_SUMMARY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/model_spec.h"

namespace millrace {

struct ModelSummary {
  ModelSpec spec;
  bool gguf = false;  // else a Hugging Face model directory
  int64_t parameter_count = 0;
  // Of most bytes of its weights: `F32`, `F16`, `BF16`, `Q4_1`.
  std::string weight_type;
  // `tokenizer.json`, `tokenizer.model`, `gguf`; empty when it has none.
  std::string tokenizer;
  // What training leaves out of its config, each with the field.
  std::vector<std::string> notes;
};

// Of the model directory or GGUF file `path`: reads its config, and checks the headers of all
// tensors against it. INVALID_ARGUMENT names the file and what is wrong in it; UNIMPLEMENTED one
// of a family that is not known.
absl::StatusOr<ModelSummary> SummarizeModel(const std::string& path);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_MODEL_MODEL_SUMMARY_H_
