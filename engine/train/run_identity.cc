#include "engine/train/run_identity.h"

#include <optional>
#include <set>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/model/families.h"
#include "nlohmann/json.hpp"

namespace millrace {
namespace {

using nlohmann::json;

constexpr absl::string_view kConfigPrefix = "model.config.";

const char* NameOf(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::kConstant:
      return "constant";
    case ScheduleKind::kLinear:
      return "linear";
    case ScheduleKind::kCosine:
      return "cosine";
    case ScheduleKind::kWsd:
      return "wsd";
  }
  return "";
}

std::string ValueOf(const RunIdentity& identity, const std::string& field) {
  const auto found = identity.find(field);
  return found == identity.end() ? "nothing" : found->second;
}

// What the fields of the config say, in whatever version's form.
std::optional<ModelSpec> ModelOf(const RunIdentity& identity) {
  json config = json::object();
  for (const auto& [field, value] : identity) {
    if (!absl::StartsWith(field, kConfigPrefix)) continue;
    config[field.substr(kConfigPrefix.size())] =
        json::parse(value, nullptr, /*allow_exceptions=*/false);
  }
  absl::StatusOr<ModelSpec> model = ParseModelConfig(config, std::nullopt);
  return model.ok() ? std::optional(*std::move(model)) : std::nullopt;
}

void AdoptInteger(const RunIdentity& identity, const std::string& field,
                  std::optional<int64_t>* value) {
  int64_t saved;
  const auto found = identity.find(field);
  if (!value->has_value() && found != identity.end() && absl::SimpleAtoi(found->second, &saved)) {
    *value = saved;
  }
}

}  // namespace

RunIdentity IdentityOf(const TrainSpec& spec, const ModelSpec& model,
                       const std::string& data_sha256, const StepShape& shape) {
  json fields;
  const json config = WriteModelConfig(model);
  for (const auto& [key, value] : config.items()) fields[absl::StrCat(kConfigPrefix, key)] = value;
  fields.erase("model.config.torch_dtype");
  if (!spec.model_from.empty()) fields["model.from"] = spec.model_from;
  // Which tokens it makes is in the hash of the data.
  fields["tokenizer"] = spec.tokenizer;
  fields["data.train"] = data_sha256;
  fields["data.eval_fraction"] = spec.eval_fraction;
  fields["data.sequence_length"] = spec.sequence_length;
  fields["train.tokens_per_step"] = spec.tokens_per_step;
  fields["train.tokens_per_micro_batch"] = spec.tokens_per_micro_batch.value_or(0);
  fields["train.head_token_chunk"] = shape.token_chunk;
  fields["train.head_vocab_tile"] = shape.vocab_tile;
  fields["train.z_loss"] = spec.z_loss;
  fields["train.seed"] = spec.seed;
  fields["train.clip_norm"] = spec.clip_norm;
  fields["train.threads"] = spec.threads.value_or(0);
  fields["train.optimizer.name"] = std::string(NameOf(spec.optimizer));
  fields["train.optimizer.learning_rate"] = spec.learning_rate;
  if (spec.betas) fields["train.optimizer.betas"] = {spec.betas->first, spec.betas->second};
  if (spec.epsilon) fields["train.optimizer.epsilon"] = *spec.epsilon;
  if (spec.momentum) fields["train.optimizer.momentum"] = *spec.momentum;
  fields["train.optimizer.weight_decay"] = spec.weight_decay;
  fields["train.schedule.name"] = NameOf(spec.schedule);
  fields["train.schedule.warmup_steps"] = spec.warmup_steps;
  if (spec.schedule != ScheduleKind::kConstant) {
    fields["train.steps"] = spec.steps;
    fields["train.schedule.final_ratio"] = spec.final_ratio;
  }
  if (spec.decay_steps) fields["train.schedule.decay_steps"] = *spec.decay_steps;
  fields["precision.recipe"] = std::string(NameOf(spec.recipe));
  fields["precision.compute"] = std::string(NameOf(spec.compute.value_or(DType::kF32)));

  RunIdentity identity;
  for (const auto& [field, value] : fields.items()) identity[field] = value.dump();
  return identity;
}

absl::Status CheckSameRun(const RunIdentity& checkpoint, const RunIdentity& job,
                          int64_t checkpoint_step) {
  std::set<std::string> fields;
  for (const auto& [field, value] : checkpoint) fields.insert(field);
  for (const auto& [field, value] : job) fields.insert(field);
  const std::optional<ModelSpec> model = ModelOf(checkpoint);
  const bool same_model = model.has_value() && model == ModelOf(job);
  std::string differences;
  for (const std::string& field : fields) {
    if (same_model && absl::StartsWith(field, kConfigPrefix)) continue;
    const std::string saved = ValueOf(checkpoint, field);
    const std::string asked = ValueOf(job, field);
    if (saved == asked) continue;
    absl::StrAppend(&differences, differences.empty() ? "" : "; ", field,
                    ": the checkpoint of step ", checkpoint_step, " was made with ", saved,
                    ", the job says ", asked);
  }
  if (differences.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(differences, "; go on with what it was made with, or start a new job"));
}

void AdoptDecisions(const RunIdentity& checkpoint, TrainSpec* spec) {
  AdoptInteger(checkpoint, "train.threads", &spec->threads);
  AdoptInteger(checkpoint, "train.tokens_per_micro_batch", &spec->tokens_per_micro_batch);
  AdoptInteger(checkpoint, "train.head_token_chunk", &spec->head_token_chunk);
  AdoptInteger(checkpoint, "train.head_vocab_tile", &spec->head_vocab_tile);
  AdoptInteger(checkpoint, "train.schedule.decay_steps", &spec->decay_steps);
  const auto compute = checkpoint.find("precision.compute");
  if (!spec->compute && compute != checkpoint.end()) {
    spec->compute = compute->second == "\"bf16\"" ? DType::kBF16 : DType::kF32;
  }
}

}  // namespace millrace
