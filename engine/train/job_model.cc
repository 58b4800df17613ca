#include "engine/train/job_model.h"

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "engine/model/families.h"
#include "engine/model/model_directory.h"
#include "nlohmann/json.hpp"

namespace millrace {
namespace {

std::optional<ModelSpec> ReadModel(const TrainSpec& spec, std::optional<int64_t> vocab_size,
                                   std::vector<FieldProblem>* problems,
                                   std::vector<FieldProblem>* notes) {
  absl::StatusOr<ModelSpec> model = ReadModelDirectoryConfig(spec.model_path, notes);
  if (!model.ok()) {
    problems->push_back({"model.from", absl::StrCat("`", spec.model_from, "` cannot be read: ",
                                                    model.status().message())});
    return std::nullopt;
  }
  if (vocab_size && *vocab_size > model->vocab_size) {
    problems->push_back(
        {"tokenizer",
         absl::StrCat("has ", *vocab_size, " tokens, and `", spec.model_from, "` only knows ",
                      model->vocab_size, "; leave the tokenizer out to use the model's own")});
  }
  if (spec.sequence_length > model->max_positions) {
    problems->push_back(
        {"data.sequence_length",
         absl::StrCat(spec.sequence_length, " is more than the context of `", spec.model_from,
                      "` (", model->max_positions, " tokens); lower it")});
  }
  return *std::move(model);
}

std::optional<ModelSpec> ParseModel(const TrainSpec& spec, std::optional<int64_t> vocab_size,
                                    std::vector<FieldProblem>* problems) {
  const nlohmann::json config =
      nlohmann::json::parse(spec.model_config_json, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) {
    problems->push_back({"model.config", "is not a JSON object"});
    return std::nullopt;
  }
  std::vector<FieldProblem> found;
  absl::StatusOr<ModelSpec> model = ParseModelConfig(config, vocab_size, &found);
  for (FieldProblem& problem : found) {
    problems->push_back({absl::StrCat("model.config.", problem.field), std::move(problem.message)});
  }
  if (!model.ok()) {
    if (found.empty()) problems->push_back({"model.config", std::string(model.status().message())});
    return std::nullopt;
  }
  if (spec.sequence_length > model->max_positions) {
    problems->push_back(
        {"data.sequence_length",
         absl::StrCat(spec.sequence_length, " is more than the model's max_position_embeddings (",
                      model->max_positions, "); lower it, or raise max_position_embeddings")});
  }
  return *std::move(model);
}

}  // namespace

std::optional<ModelSpec> MakeJobModel(const TrainSpec& spec, std::optional<int64_t> vocab_size,
                                      std::vector<FieldProblem>* problems,
                                      std::vector<FieldProblem>* notes) {
  return spec.model_from.empty() ? ParseModel(spec, vocab_size, problems)
                                 : ReadModel(spec, vocab_size, problems, notes);
}

}  // namespace millrace
