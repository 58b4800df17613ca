#include "server/worker/spec_conversion.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "proto/job_file/job_file.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

v1::JobSpec Parse(const std::string& text) {
  auto spec = ParseJobFile(text);
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.ok() ? *spec : v1::JobSpec();
}

constexpr char kFull[] = R"(
name: full
model: {config: {model_type: llama, hidden_size: 256, rms_norm_eps: 1.0e-5, tie: true,
                 list: [1, 2.5], nothing: null}}
tokenizer: byte
data: {train: datasets/plays, eval_fraction: 0.1, sequence_length: 512}
train:
  steps: 2000
  tokens_per_step: 16384
  tokens_per_micro_batch: 4096
  seed: 7
  clip_norm: 0.5
  z_loss: 1.0e-4
  optimizer: {name: adamw, learning_rate: 1.0e-3, betas: [0.8, 0.99], epsilon: 1.0e-6,
              weight_decay: 0.2}
  schedule: {name: wsd, warmup_steps: 100, final_ratio: 0.2, decay_steps: 300}
  threads: 3
precision: {recipe: fp32, compute: f32}
memory:
  device_budget: 2GiB
  host_budget: 3GiB
  device: cpu-discrete
  link_gbps: 12.5
  plan: {order: batch_major, weight_slots: 3, resident_units: 4, activations: selective,
         layer_inputs: host, head: tiles}
checkpoint: {every_steps: 200, keep_last: 4, keep_best: 3}
evaluation: {every_steps: 50, max_sequences: 8}
sample: {every_steps: 500, prompts: [Once, Twice], max_tokens: 32, temperature: 0.5, top_k: 10}
trace: {steps: [10, 12]}
)";

TEST(SpecConversion, RefusesNumbersThatJsonDoesNotHave) {
  v1::JobSpec spec = Parse(kFull);
  auto& config = *spec.mutable_model()->mutable_config()->mutable_fields();
  config["hidden_size"].set_number_value(std::numeric_limits<double>::quiet_NaN());
  (*config["deep"].mutable_struct_value()->mutable_fields())["x"].set_number_value(
      std::numeric_limits<double>::infinity());
  config["list"].mutable_list_value()->mutable_values(1)->clear_kind();
  std::vector<FieldProblem> problems;
  ToTrainSpec(spec, {}, &problems);
  std::vector<std::string> fields;
  for (const FieldProblem& problem : problems) fields.push_back(problem.field);
  EXPECT_THAT(fields, UnorderedElementsAre("model.config.hidden_size", "model.config.deep.x",
                                           "model.config.list[1]"));
}

TEST(SpecConversion, RefusesANameThatIsNotAShortLine) {
  v1::JobSpec spec = Parse(kFull);
  const auto problems_with = [&](const std::string& name) {
    spec.set_name(name);
    std::vector<FieldProblem> problems;
    ToTrainSpec(spec, {}, &problems);
    return problems.size();
  };
  std::string umlauts;
  for (int i = 0; i < 63; ++i) umlauts += "ü";
  EXPECT_EQ(problems_with(umlauts), 0);
  EXPECT_EQ(problems_with(umlauts + "u"), 1);
  EXPECT_EQ(problems_with("two\nlines"), 1);
}

TEST(SpecConversion, CarriesEveryField) {
  std::vector<FieldProblem> problems;
  const TrainSpec spec = ToTrainSpec(Parse(kFull), {.data = "/data/plays"}, &problems);
  EXPECT_TRUE(problems.empty());
  EXPECT_EQ(spec.data_path, "/data/plays");
  EXPECT_DOUBLE_EQ(spec.eval_fraction, 0.1);
  EXPECT_EQ(spec.sequence_length, 512);
  EXPECT_EQ(spec.steps, 2000);
  EXPECT_EQ(spec.tokens_per_step, 16384);
  EXPECT_EQ(spec.tokens_per_micro_batch, 4096);
  EXPECT_EQ(spec.seed, 7);
  EXPECT_DOUBLE_EQ(spec.clip_norm, 0.5);
  EXPECT_DOUBLE_EQ(spec.learning_rate, 1e-3);
  EXPECT_EQ(spec.optimizer, OptimizerKind::kAdamW);
  EXPECT_EQ(spec.betas, std::make_pair(0.8, 0.99));
  EXPECT_EQ(spec.epsilon, 1e-6);
  EXPECT_DOUBLE_EQ(spec.weight_decay, 0.2);
  EXPECT_EQ(spec.schedule, ScheduleKind::kWsd);
  EXPECT_EQ(spec.warmup_steps, 100);
  EXPECT_DOUBLE_EQ(spec.final_ratio, 0.2);
  EXPECT_EQ(spec.decay_steps, 300);
  EXPECT_EQ(spec.threads, 3);
  EXPECT_EQ(spec.recipe, Recipe::kFp32);
  EXPECT_EQ(spec.compute, DType::kF32);
  EXPECT_EQ(spec.device_budget_bytes, int64_t{2} << 30);
  EXPECT_EQ(spec.host_budget_bytes, int64_t{3} << 30);
  EXPECT_DOUBLE_EQ(spec.z_loss, 1e-4);
  EXPECT_EQ(spec.device, "cpu-discrete");
  EXPECT_DOUBLE_EQ(spec.link_gbps.value_or(0), 12.5);
  EXPECT_EQ(spec.plan.order, Order::kBatchMajor);
  EXPECT_EQ(spec.plan.weight_slots, 3);
  EXPECT_EQ(spec.plan.resident_units, 4);
  EXPECT_EQ(spec.plan.activations, Activations::kSelective);
  EXPECT_EQ(spec.plan.inputs_on_host, true);
  EXPECT_EQ(spec.plan.head, HeadPlacement::kTiled);
  EXPECT_EQ(spec.checkpoint_every_steps, 200);
  EXPECT_EQ(spec.keep_last, 4);
  EXPECT_EQ(spec.keep_best, 3);
  EXPECT_EQ(spec.evaluate_every_steps, 50);
  EXPECT_EQ(spec.evaluate_max_sequences, 8);
  EXPECT_EQ(spec.sample_every_steps, 500);
  EXPECT_THAT(spec.prompts, ElementsAre("Once", "Twice"));
  EXPECT_EQ(spec.sample_max_tokens, 32);
  EXPECT_DOUBLE_EQ(spec.temperature, 0.5);
  EXPECT_EQ(spec.top_k, 10);
  EXPECT_EQ(spec.trace_steps, std::make_pair(int64_t{10}, int64_t{12}));
}

TEST(SpecConversion, WritesWholeNumbersOfAModelAsIntegers) {
  std::vector<FieldProblem> problems;
  const TrainSpec spec = ToTrainSpec(Parse(kFull), {}, &problems);
  const nlohmann::json config = nlohmann::json::parse(spec.model_config_json);
  EXPECT_TRUE(config["hidden_size"].is_number_integer());
  EXPECT_EQ(config["hidden_size"], 256);
  EXPECT_EQ(config["rms_norm_eps"].get<double>(), 1e-5);
  EXPECT_EQ(config["tie"], true);
  EXPECT_EQ(config["list"].dump(), "[1,2.5]");
  EXPECT_TRUE(config["nothing"].is_null());
}

TEST(SpecConversion, LeavesDefaultsToTheEngine) {
  std::vector<FieldProblem> problems;
  const TrainSpec spec = ToTrainSpec(v1::JobSpec(), {}, &problems);
  EXPECT_TRUE(problems.empty());
  EXPECT_EQ(spec.model_config_json, "");
  EXPECT_EQ(spec.tokenizer, TrainSpec().tokenizer);
  EXPECT_EQ(spec.schedule, TrainSpec().schedule);
  EXPECT_DOUBLE_EQ(spec.learning_rate, TrainSpec().learning_rate);
  EXPECT_FALSE(spec.threads.has_value());
  EXPECT_FALSE(spec.compute.has_value());
  EXPECT_EQ(spec.device, TrainSpec().device);
  EXPECT_FALSE(spec.link_gbps.has_value());
  EXPECT_FALSE(spec.plan.order.has_value());
  EXPECT_FALSE(spec.plan.inputs_on_host.has_value());
  EXPECT_FALSE(spec.trace_steps.has_value());
}

TEST(SpecConversion, NamesWhatTheEngineHasNoWordFor) {
  std::vector<FieldProblem> problems;
  ToTrainSpec(Parse("train: {optimizer: {name: adam, betas: [0.9]}, schedule: {name: step}}\n"
                    "precision: {recipe: half, compute: fp8}\n"),
              {}, &problems);
  std::vector<std::string> fields;
  for (const FieldProblem& problem : problems) fields.push_back(problem.field);
  EXPECT_THAT(fields, ElementsAre("train.optimizer.name", "train.optimizer.betas",
                                  "train.schedule.name", "precision.recipe", "precision.compute"));
  EXPECT_THAT(problems[0].message, HasSubstr("`adam` is unknown; use one of adamw, sgd, lion"));
  EXPECT_THAT(problems[2].message, HasSubstr("one of cosine, constant, linear, wsd"));
}

TEST(SpecConversion, NamesPlanChoicesAndTracesThatAreNone) {
  std::vector<FieldProblem> problems;
  ToTrainSpec(Parse("memory: {plan: {order: random, activations: some, layer_inputs: disk,\n"
                    "                head: half}}\n"
                    "trace: {steps: [10]}\n"),
              {}, &problems);
  std::vector<std::string> fields;
  for (const FieldProblem& problem : problems) fields.push_back(problem.field);
  EXPECT_THAT(fields, ElementsAre("memory.plan.order", "memory.plan.activations",
                                  "memory.plan.layer_inputs", "memory.plan.head", "trace.steps"));
  EXPECT_THAT(problems[0].message,
              HasSubstr("`random` is unknown; use one of layer_major, batch_major"));
  EXPECT_THAT(problems[4].message, HasSubstr("[10, 12]"));
}

TEST(SpecConversion, FillsInWhatWasDecidedOnce) {
  std::vector<FieldProblem> problems;
  v1::JobSpec submitted = Parse(
      "model: {config: {model_type: llama}}\n"
      "data: {train: datasets/plays, sequence_length: 64}\n"
      "train: {steps: 100, tokens_per_step: 128}\n");
  TrainSpec resolved = Resolve(ToTrainSpec(submitted, {}, &problems), 4, true);
  resolved.tokens_per_micro_batch = 64;
  const v1::JobSpec filled = FillIn(submitted, resolved);
  EXPECT_EQ(filled.train().threads(), 4);
  EXPECT_EQ(filled.train().tokens_per_micro_batch(), 64);
  EXPECT_EQ(filled.train().schedule().name(), "cosine");
  EXPECT_EQ(filled.precision().compute(), "bf16");
  EXPECT_EQ(filled.checkpoint().every_steps(), 10);
  EXPECT_EQ(filled.tokenizer(), "byte");
  EXPECT_FALSE(filled.memory().has_device_budget_bytes());
  EXPECT_EQ(filled.memory().device(), "cpu");
  EXPECT_FALSE(filled.memory().has_plan());

  const v1::JobSpec again = FillIn(filled, Resolve(ToTrainSpec(filled, {}, &problems), 8, false));
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(filled, again))
      << FormatJobFile(again);
  EXPECT_TRUE(
      google::protobuf::util::MessageDifferencer::Equals(filled, Parse(FormatJobFile(filled))))
      << "the job file that a worker is started with says the same";
}

TEST(SpecConversion, AModelToBeginWithHasItsTokenizer) {
  std::vector<FieldProblem> problems;
  const v1::JobSpec job = Parse("model: {from: models/tiny}\n");
  const TrainSpec spec = ToTrainSpec(job, {.model = "/models/tiny/files"}, &problems);
  EXPECT_EQ(spec.model_from, "models/tiny");
  EXPECT_EQ(spec.model_path, "/models/tiny/files");
  EXPECT_EQ(spec.model_config_json, "");
  const v1::JobSpec filled = FillIn(job, Resolve(spec, 1, true));
  EXPECT_EQ(filled.model().from(), "models/tiny");
  EXPECT_EQ(filled.tokenizer(), "");
}

TEST(SpecConversion, WithoutADaemonNamesArePaths) {
  const JobPaths paths = PathsInJob(
      Parse("model: {from: smol}\ntokenizer: smol/tokenizer.json\ndata: {train: text.txt}\n"));
  EXPECT_EQ(paths.model, "smol");
  EXPECT_EQ(paths.tokenizer, "smol/tokenizer.json");
  EXPECT_EQ(paths.data, "text.txt");
  EXPECT_EQ(PathsInJob(Parse("tokenizer: byte\n")).tokenizer, "");
}

TEST(SpecConversion, FillsInOnlyWhatTheOptimizerHas) {
  std::vector<FieldProblem> problems;
  const v1::JobSpec sgd = Parse(
      "train: {steps: 100, optimizer: {name: sgd, momentum: 0.5}}\n"
      "precision: {recipe: tiny}\n");
  const TrainSpec spec = ToTrainSpec(sgd, {}, &problems);
  EXPECT_EQ(spec.optimizer, OptimizerKind::kSgd);
  EXPECT_EQ(spec.momentum, 0.5);
  EXPECT_EQ(spec.recipe, Recipe::kTiny);
  const v1::JobSpec filled = FillIn(sgd, Resolve(spec, 1, true));
  EXPECT_EQ(filled.train().optimizer().name(), "sgd");
  EXPECT_EQ(filled.train().optimizer().momentum(), 0.5);
  EXPECT_EQ(filled.train().optimizer().betas_size(), 0);
  EXPECT_FALSE(filled.train().optimizer().has_epsilon());
  EXPECT_EQ(filled.precision().recipe(), "tiny");
}

TEST(SpecConversion, ChangesNothingThatWasSaid) {
  std::vector<FieldProblem> problems;
  const v1::JobSpec spec = Parse(kFull);
  const v1::JobSpec filled = FillIn(spec, Resolve(ToTrainSpec(spec, {}, &problems), 8, true));
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(spec, filled))
      << FormatJobFile(filled);
}

}  // namespace
}  // namespace millrace
