#include "server/worker/spec_conversion.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"

namespace millrace {
namespace {

// Doubles hold every integer up to this.
constexpr double kLargestExactInteger = 9007199254740992.0;
constexpr int64_t kMostNameCharacters = 63;

nlohmann::json ToJson(const google::protobuf::Value& value);

nlohmann::json ToJson(const google::protobuf::Struct& value) {
  nlohmann::json object = nlohmann::json::object();
  for (const auto& [name, field] : value.fields()) object[name] = ToJson(field);
  return object;
}

nlohmann::json ToJson(const google::protobuf::Value& value) {
  switch (value.kind_case()) {
    case google::protobuf::Value::kNumberValue: {
      const double number = value.number_value();
      if (std::trunc(number) == number && std::abs(number) <= kLargestExactInteger) {
        return static_cast<int64_t>(number);
      }
      return number;
    }
    case google::protobuf::Value::kStringValue:
      return value.string_value();
    case google::protobuf::Value::kBoolValue:
      return value.bool_value();
    case google::protobuf::Value::kStructValue:
      return ToJson(value.struct_value());
    case google::protobuf::Value::kListValue: {
      nlohmann::json list = nlohmann::json::array();
      for (const auto& item : value.list_value().values()) list.push_back(ToJson(item));
      return list;
    }
    case google::protobuf::Value::kNullValue:
    case google::protobuf::Value::KIND_NOT_SET:
      break;
  }
  return nullptr;
}

// JSON has no such numbers; as null they would pass for left out.
void CheckConfigValue(const google::protobuf::Value& value, const std::string& field,
                      std::vector<FieldProblem>* problems) {
  switch (value.kind_case()) {
    case google::protobuf::Value::kNumberValue:
      if (!std::isfinite(value.number_value())) {
        problems->push_back({field, absl::StrCat(value.number_value(), " is not a finite number")});
      }
      break;
    case google::protobuf::Value::kStructValue:
      for (const auto& [name, inner] : value.struct_value().fields()) {
        CheckConfigValue(inner, absl::StrCat(field, ".", name), problems);
      }
      break;
    case google::protobuf::Value::kListValue:
      for (int i = 0; i < value.list_value().values_size(); ++i) {
        CheckConfigValue(value.list_value().values(i), absl::StrCat(field, "[", i, "]"), problems);
      }
      break;
    case google::protobuf::Value::KIND_NOT_SET:
      problems->push_back({field, "has no value; give one or leave the key out"});
      break;
    default:
      break;
  }
}

// It is shown in one line.
void CheckName(const std::string& name, std::vector<FieldProblem>* problems) {
  const auto characters = std::count_if(name.begin(), name.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;  // not within a UTF-8 sequence
  });
  if (characters > kMostNameCharacters) {
    problems->push_back({"name", absl::StrCat(characters, " characters are too many; give at most ",
                                              kMostNameCharacters)});
  }
  if (std::any_of(name.begin(), name.end(), [](char c) { return absl::ascii_iscntrl(c); })) {
    problems->push_back({"name", "has a line break or another control character; remove it"});
  }
}

template <typename T>
struct Named {
  const char* name;
  T value;
};

constexpr Named<ScheduleKind> kSchedules[] = {{"cosine", ScheduleKind::kCosine},
                                              {"constant", ScheduleKind::kConstant},
                                              {"linear", ScheduleKind::kLinear},
                                              {"wsd", ScheduleKind::kWsd}};
constexpr Named<Recipe> kRecipes[] = {{"full", Recipe::kFull},
                                      {"lean", Recipe::kLean},
                                      {"tiny", Recipe::kTiny},
                                      {"fp32", Recipe::kFp32}};
constexpr Named<DType> kComputeTypes[] = {{"bf16", DType::kBF16}, {"f32", DType::kF32}};
constexpr Named<OptimizerKind> kOptimizers[] = {
    {"adamw", OptimizerKind::kAdamW}, {"sgd", OptimizerKind::kSgd}, {"lion", OptimizerKind::kLion}};
constexpr Named<Order> kOrders[] = {{"layer_major", Order::kLayerMajor},
                                    {"batch_major", Order::kBatchMajor}};
constexpr Named<Activations> kActivations[] = {{"recompute", Activations::kRecompute},
                                               {"selective", Activations::kSelective},
                                               {"keep", Activations::kKeep}};
constexpr Named<bool> kInputsOnHost[] = {{"device", false}, {"host", true}};
constexpr Named<HeadPlacement> kHeadPlacements[] = {{"whole", HeadPlacement::kWhole},
                                                    {"tiles", HeadPlacement::kTiled}};

// The value called `name`; none for an empty or unknown name, the latter with a problem.
template <typename T, size_t kCount>
std::optional<T> ValueOf(const Named<T> (&table)[kCount], const std::string& name,
                         absl::string_view field, std::vector<FieldProblem>* problems) {
  if (name.empty()) return std::nullopt;
  for (const Named<T>& row : table) {
    if (name == row.name) return row.value;
  }
  const std::string known =
      absl::StrJoin(std::begin(table), std::end(table), ", ",
                    [](std::string* out, const Named<T>& row) { absl::StrAppend(out, row.name); });
  problems->push_back({std::string(field), absl::StrCat("`", name, "` is unknown; use ",
                                                        kCount > 1 ? "one of " : "", known)});
  return std::nullopt;
}

template <typename T, size_t kCount>
const char* NameIn(const Named<T> (&table)[kCount], T value) {
  for (const Named<T>& row : table) {
    if (row.value == value) return row.name;
  }
  return "";
}

void ConvertTrain(const v1::TrainSpec& from, TrainSpec* to, std::vector<FieldProblem>* problems) {
  to->steps = from.steps();
  to->tokens_per_step = from.tokens_per_step();
  if (from.has_tokens_per_micro_batch()) to->tokens_per_micro_batch = from.tokens_per_micro_batch();
  if (from.has_seed()) to->seed = from.seed();
  if (from.has_clip_norm()) to->clip_norm = from.clip_norm();
  if (from.has_z_loss()) to->z_loss = from.z_loss();
  if (from.has_threads()) to->threads = from.threads();

  const v1::OptimizerSpec& optimizer = from.optimizer();
  to->optimizer = ValueOf(kOptimizers, optimizer.name(), "train.optimizer.name", problems)
                      .value_or(to->optimizer);
  if (optimizer.has_learning_rate()) to->learning_rate = optimizer.learning_rate();
  if (optimizer.betas_size() == 2) {
    to->betas = {optimizer.betas(0), optimizer.betas(1)};
  } else if (optimizer.betas_size() != 0) {
    problems->push_back({"train.optimizer.betas",
                         absl::StrCat(optimizer.betas_size(), " given; give two, as [0.9, 0.95]")});
  }
  if (optimizer.has_epsilon()) to->epsilon = optimizer.epsilon();
  if (optimizer.has_weight_decay()) to->weight_decay = optimizer.weight_decay();
  if (optimizer.has_momentum()) to->momentum = optimizer.momentum();

  const v1::ScheduleSpec& schedule = from.schedule();
  to->schedule =
      ValueOf(kSchedules, schedule.name(), "train.schedule.name", problems).value_or(to->schedule);
  if (schedule.has_warmup_steps()) to->warmup_steps = schedule.warmup_steps();
  if (schedule.has_final_ratio()) to->final_ratio = schedule.final_ratio();
  if (schedule.has_decay_steps()) to->decay_steps = schedule.decay_steps();
}

void ConvertMemory(const v1::MemorySpec& from, TrainSpec* to, std::vector<FieldProblem>* problems) {
  if (from.has_device_budget_bytes()) to->device_budget_bytes = from.device_budget_bytes();
  if (from.has_host_budget_bytes()) to->host_budget_bytes = from.host_budget_bytes();
  if (!from.device().empty()) to->device = from.device();
  if (from.has_link_gbps()) to->link_gbps = from.link_gbps();

  const v1::PlanSpec& plan = from.plan();
  to->plan.order = ValueOf(kOrders, plan.order(), "memory.plan.order", problems);
  if (plan.has_weight_slots()) to->plan.weight_slots = plan.weight_slots();
  if (plan.has_resident_units()) to->plan.resident_units = plan.resident_units();
  to->plan.activations =
      ValueOf(kActivations, plan.activations(), "memory.plan.activations", problems);
  to->plan.inputs_on_host =
      ValueOf(kInputsOnHost, plan.layer_inputs(), "memory.plan.layer_inputs", problems);
  to->plan.head = ValueOf(kHeadPlacements, plan.head(), "memory.plan.head", problems);
}

void ConvertTrace(const v1::TraceSpec& from, TrainSpec* to, std::vector<FieldProblem>* problems) {
  if (from.steps_size() == 2) {
    to->trace_steps.emplace(from.steps(0), from.steps(1));
  } else if (from.steps_size() != 0) {
    problems->push_back(
        {"trace.steps",
         absl::StrCat(from.steps_size(), " given; give the first and the last, as [10, 12]")});
  }
}

}  // namespace

std::string StructToJson(const google::protobuf::Struct& value) { return ToJson(value).dump(); }

JobPaths PathsInJob(const v1::JobSpec& spec) {
  return {.data = spec.data().train(),
          .model = spec.model().from(),
          .tokenizer = spec.tokenizer() == "byte" ? "" : spec.tokenizer()};
}

TrainSpec ToTrainSpec(const v1::JobSpec& spec, const JobPaths& paths,
                      std::vector<FieldProblem>* problems) {
  TrainSpec result;
  CheckName(spec.name(), problems);
  for (const auto& [key, value] : spec.model().config().fields()) {
    CheckConfigValue(value, absl::StrCat("model.config.", key), problems);
  }
  if (spec.model().has_config()) result.model_config_json = StructToJson(spec.model().config());
  result.model_from = spec.model().from();
  result.model_path = paths.model;
  result.tokenizer = spec.tokenizer();
  result.tokenizer_path = paths.tokenizer;
  result.data_path = paths.data;
  if (spec.data().has_eval_fraction()) result.eval_fraction = spec.data().eval_fraction();
  result.sequence_length = spec.data().sequence_length();
  ConvertTrain(spec.train(), &result, problems);

  result.recipe = ValueOf(kRecipes, spec.precision().recipe(), "precision.recipe", problems)
                      .value_or(result.recipe);
  result.compute =
      ValueOf(kComputeTypes, spec.precision().compute(), "precision.compute", problems);

  ConvertMemory(spec.memory(), &result, problems);
  ConvertTrace(spec.trace(), &result, problems);

  const v1::CheckpointSpec& checkpoint = spec.checkpoint();
  if (checkpoint.has_every_steps()) result.checkpoint_every_steps = checkpoint.every_steps();
  if (checkpoint.has_keep_last()) result.keep_last = checkpoint.keep_last();
  if (checkpoint.has_keep_best()) result.keep_best = checkpoint.keep_best();

  const v1::EvaluationSpec& evaluation = spec.evaluation();
  if (evaluation.has_every_steps()) result.evaluate_every_steps = evaluation.every_steps();
  if (evaluation.has_max_sequences()) result.evaluate_max_sequences = evaluation.max_sequences();

  const v1::SampleSpec& sample = spec.sample();
  if (sample.has_every_steps()) result.sample_every_steps = sample.every_steps();
  result.prompts.assign(sample.prompts().begin(), sample.prompts().end());
  if (sample.has_max_tokens()) result.sample_max_tokens = sample.max_tokens();
  if (sample.has_temperature()) result.temperature = sample.temperature();
  if (sample.has_top_k()) result.top_k = sample.top_k();
  return result;
}

v1::JobSpec FillIn(v1::JobSpec spec, const TrainSpec& resolved) {
  if (!resolved.model_from.empty()) spec.mutable_model()->set_from(resolved.model_from);
  spec.set_tokenizer(resolved.tokenizer);
  spec.mutable_data()->set_eval_fraction(resolved.eval_fraction);

  v1::TrainSpec* train = spec.mutable_train();
  if (resolved.tokens_per_micro_batch) {
    train->set_tokens_per_micro_batch(*resolved.tokens_per_micro_batch);
  }
  train->set_seed(resolved.seed);
  train->set_clip_norm(resolved.clip_norm);
  train->set_z_loss(resolved.z_loss);
  if (resolved.threads) train->set_threads(static_cast<int32_t>(*resolved.threads));
  v1::OptimizerSpec* optimizer = train->mutable_optimizer();
  optimizer->set_name(NameIn(kOptimizers, resolved.optimizer));
  optimizer->set_learning_rate(resolved.learning_rate);
  optimizer->clear_betas();
  if (resolved.betas) {
    optimizer->add_betas(resolved.betas->first);
    optimizer->add_betas(resolved.betas->second);
  }
  if (resolved.epsilon) optimizer->set_epsilon(*resolved.epsilon);
  if (resolved.momentum) optimizer->set_momentum(*resolved.momentum);
  optimizer->set_weight_decay(resolved.weight_decay);
  v1::ScheduleSpec* schedule = train->mutable_schedule();
  schedule->set_name(NameIn(kSchedules, resolved.schedule));
  schedule->set_warmup_steps(resolved.warmup_steps);
  schedule->set_final_ratio(resolved.final_ratio);
  if (resolved.decay_steps) schedule->set_decay_steps(*resolved.decay_steps);

  spec.mutable_precision()->set_recipe(NameIn(kRecipes, resolved.recipe));
  if (resolved.compute)
    spec.mutable_precision()->set_compute(NameIn(kComputeTypes, *resolved.compute));

  // The planner's choices are no part of the job: another machine may plan it otherwise.
  spec.mutable_memory()->set_device(resolved.device);

  v1::CheckpointSpec* checkpoint = spec.mutable_checkpoint();
  if (resolved.checkpoint_every_steps) {
    checkpoint->set_every_steps(*resolved.checkpoint_every_steps);
  }
  checkpoint->set_keep_last(static_cast<int32_t>(resolved.keep_last));
  checkpoint->set_keep_best(static_cast<int32_t>(resolved.keep_best));

  v1::EvaluationSpec* evaluation = spec.mutable_evaluation();
  if (resolved.evaluate_every_steps) evaluation->set_every_steps(*resolved.evaluate_every_steps);
  evaluation->set_max_sequences(static_cast<int32_t>(resolved.evaluate_max_sequences));

  if (resolved.sample_every_steps > 0) {
    v1::SampleSpec* sample = spec.mutable_sample();
    sample->set_every_steps(resolved.sample_every_steps);
    sample->set_max_tokens(static_cast<int32_t>(resolved.sample_max_tokens));
    sample->set_temperature(resolved.temperature);
    sample->set_top_k(static_cast<int32_t>(resolved.top_k));
  }
  return spec;
}

}  // namespace millrace
