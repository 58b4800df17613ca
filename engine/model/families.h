// Model families, and the Hugging Face style config.json that describes a member of one.
//
//   std::vector<FieldProblem> problems;
//   absl::StatusOr<ModelSpec> spec = ParseModelConfig(config, tokenizer->vocab_size(), &problems);
//
// A family is a row of a table in family_table.cc: which key gives which number, what it is when
// left out, and which values of the keys that change the mathematics we can compute. Whatever
// changes the mathematics and is not supported is refused by name, and so is a key nobody knows.
// Keys are read in the form of older files and of newer ones (rope_theta and rope_scaling or
// rope_parameters, sliding_window_pattern or layer_types).
#ifndef MILLRACE_ENGINE_MODEL_FAMILIES_H_
#define MILLRACE_ENGINE_MODEL_FAMILIES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/field_problem.h"
#include "engine/model/model_spec.h"
#include "nlohmann/json.hpp"

namespace millrace {

// Values of `model_type` that ParseModelConfig takes.
std::vector<std::string> FamilyNames();

// The spec of a config.json. `tokenizer_vocab`, where given, stands in for a missing `vocab_size`
// and is the least that it may be. INVALID_ARGUMENT lists all problems, each with the path of its
// field in the config; `problems`, where given, gets the same as a list. Whole numbers written as
// 256.0 are taken.
//
// Dropout is not done. A model is the same function with it or without, and most files that have it
// have it from pre-training (GPT-2's say 0.1), so those who train a model that is there give
// `notes`, which get a line for each such key, for them to show. Without `notes`, for models
// described from scratch, dropout is refused.
absl::StatusOr<ModelSpec> ParseModelConfig(const nlohmann::json& config,
                                           std::optional<int64_t> tokenizer_vocab,
                                           std::vector<FieldProblem>* problems = nullptr,
                                           std::vector<FieldProblem>* notes = nullptr);

struct WriteConfigOptions {
  // "float32" or "bfloat16": the type of the weights beside the config.
  std::string torch_dtype = "float32";
  // The tokenizer's: the tokens that end and that begin a text. Where none begins it, the end of
  // the text before is written as what does.
  std::optional<int64_t> end_of_document, begin_of_document;
};

// A config.json that ParseModelConfig reads back to the same spec and that transformers loads, in
// the older form wherever it can say what the spec says, which all versions read.
nlohmann::json WriteModelConfig(const ModelSpec& spec, const WriteConfigOptions& options = {});

}  // namespace millrace

#endif  // MILLRACE_ENGINE_MODEL_FAMILIES_H_
