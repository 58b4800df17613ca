#include "engine/train/job_plan.h"

#include <algorithm>
#include <string>

#include "engine/train/job_step.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr int64_t kGiB = int64_t{1} << 30;

ModelSpec Model(int64_t layers, int64_t hidden, int64_t heads, int64_t kv_heads,
                int64_t intermediate, int64_t vocab) {
  ModelSpec model;
  model.model_type = "llama";
  model.vocab_size = vocab;
  model.hidden_size = hidden;
  model.num_layers = layers;
  model.num_heads = heads;
  model.num_kv_heads = kv_heads;
  model.head_dim = model.rotary_width = hidden / heads;
  model.intermediate_size = intermediate;
  model.max_positions = 32768;
  model.attention_bias = true;
  return model;
}
ModelSpec Qwen7B() { return Model(28, 3584, 28, 4, 18944, 152064); }
ModelSpec Qwen14B() { return Model(48, 5120, 40, 8, 13824, 152064); }
ModelSpec Small() { return Model(4, 128, 4, 2, 352, 512); }

TrainSpec Spec(int64_t tokens_per_step, int64_t sequence = 1024) {
  TrainSpec spec;
  spec.steps = 10;
  spec.sequence_length = sequence;
  spec.tokens_per_step = tokens_per_step;
  spec.compute = DType::kBF16;
  spec.threads = 2;
  return spec;
}

int64_t BytesFor(const std::vector<MemoryItem>& items, const std::string& purpose) {
  int64_t bytes = 0;
  for (const MemoryItem& item : items) {
    if (item.purpose == purpose) bytes += static_cast<int64_t>(item.bytes);
  }
  return bytes;
}
int64_t Total(const std::vector<MemoryItem>& items) {
  int64_t bytes = 0;
  for (const MemoryItem& item : items) bytes += static_cast<int64_t>(item.bytes);
  return bytes;
}

TEST(JobStepTest, SizesOfMicroBatchesAreFoundAtOnceHoweverLargeTheStep) {
  EXPECT_THAT(MultiplesDividing(24, 2), ElementsAre(2, 4, 6, 8, 12, 24));
  EXPECT_THAT(MultiplesDividing(9, 3), ElementsAre(3, 9));
  EXPECT_THAT(MultiplesDividing(10, 4), IsEmpty());
  EXPECT_EQ(MultiplesDividing(int64_t{1} << 40, 2).size(), 40u);
}

TEST(JobPlanTest, ASevenBillionModelOnAnH200IsFastAndLeavesTheDeviceHardlyIdle) {
  for (const ModelSpec& model : {Qwen7B(), Qwen14B()}) {
    const absl::StatusOr<JobPlan> plan =
        PlanJob(Spec(65536), model, {.device = "h200", .trace = true});
    ASSERT_TRUE(plan.ok()) << plan.status();
    ASSERT_TRUE(plan->fits) << plan->shortfall;
    EXPECT_EQ(plan->device, "h200");
    EXPECT_LT(plan->device_idle_ratio, 0.02);
    EXPECT_GT(plan->model_flops, 400e12);
    EXPECT_LT(plan->model_flops, 780e12);
    EXPECT_EQ(plan->bound, Bound::kCompute);
    EXPECT_LE(Total(plan->device_memory), plan->device_budget_bytes);
    EXPECT_LE(Total(plan->host_memory), plan->host_budget_bytes);
    EXPECT_NEAR(plan->stalls.total(), plan->device_idle_ratio * plan->step_seconds, 1e-6);
    EXPECT_NEAR(plan->tokens_per_second * plan->step_seconds, 65536, 1);
    EXPECT_GE(plan->largest_sequence_length, 1024);
    EXPECT_GE(plan->largest_micro_batch_tokens, 1024);
    EXPECT_GE(plan->assumptions.size(), 5);
    EXPECT_THAT(plan->trace_json, HasSubstr("block_backward"));
  }
}

TEST(JobPlanTest, ShippedProfilesGiveWhatAFastTrainerWasMeasuredToDo) {
  // Tokens/s of Qwen2.5 shapes, sequence 1024, bf16, published with LLM.Q (Schultheis & Alistarh
  // 2025).
  struct Anchor {
    const char* device;
    ModelSpec model;
    bool tied;
    double tokens_per_second;
  };
  const Anchor anchors[] = {
      {"rtx-4090", Model(24, 896, 14, 2, 4864, 151936), true, 39800},
      {"rtx-4090", Model(28, 1536, 12, 2, 8960, 151936), true, 14100},
      {"rtx-4090", Model(36, 2048, 16, 2, 11008, 151936), true, 7005},
      {"rtx-4090", Qwen7B(), false, 2777},
      {"rtx-4090", Qwen14B(), false, 1349},
      {"h100-sxm", Model(24, 896, 14, 2, 4864, 151936), true, 149000},
      {"h100-sxm", Model(28, 1536, 12, 2, 8960, 151936), true, 59000},
      {"h100-sxm", Model(36, 2048, 16, 2, 11008, 151936), true, 30900},
      {"h100-sxm", Qwen7B(), false, 13800},
      {"h100-sxm", Qwen14B(), false, 6330},
  };
  for (Anchor anchor : anchors) {
    anchor.model.tied_embeddings = anchor.tied;
    const JobPlan plan = *PlanJob(Spec(131072), anchor.model,
                                  {.device = anchor.device, .host_memory_bytes = 512 * kGiB});
    ASSERT_TRUE(plan.fits) << plan.shortfall;
    EXPECT_NEAR(plan.tokens_per_second / anchor.tokens_per_second, 1, 0.25)
        << anchor.device << " " << anchor.model.hidden_size;
  }
}

TEST(JobPlanTest, OnASmallCardWithAFewGibibytesTheFirstRecipeThatFitsIsNamedAndFits) {
  TrainSpec spec = Spec(16384);
  const PlanTarget target{.device = "rtx-3080-10gb", .host_memory_bytes = 64 * kGiB};
  const JobPlan full = *PlanJob(spec, Qwen7B(), target);
  EXPECT_FALSE(full.fits);
  EXPECT_EQ(full.shortfall_field, "memory.host_budget");
  EXPECT_THAT(full.shortfall, HasSubstr("the host lacks"));
  EXPECT_GT(BytesFor(full.host_memory, "optimizer"), 50 * kGiB);
  const std::string named =
      full.shortfall.find("precision.recipe: lean") != std::string::npos ? "lean" : "tiny";
  EXPECT_THAT(full.shortfall, HasSubstr("precision.recipe: " + named));

  spec.recipe = named == "lean" ? Recipe::kLean : Recipe::kTiny;
  const JobPlan plan = *PlanJob(spec, Qwen7B(), target);
  ASSERT_TRUE(plan.fits) << plan.shortfall;
  EXPECT_GT(plan.tokens_per_second, 300);
  for (const char* purpose : {"weights", "optimizer", "gradients", "data", "runtime"}) {
    EXPECT_GT(BytesFor(plan.host_memory, purpose), 0) << purpose;
  }
  for (const char* purpose : {"slots", "activations", "gradients", "workspace"}) {
    EXPECT_GT(BytesFor(plan.device_memory, purpose), 0) << purpose;
  }
  std::vector<std::string> names;
  for (const JobPlan::Choice& choice : plan.choices) names.push_back(choice.name);
  for (const char* name : {"order", "head", "activations", "layer_inputs", "weight_slots",
                           "resident_units", "update", "tokens_per_micro_batch"}) {
    EXPECT_NE(std::find(names.begin(), names.end(), name), names.end()) << name;
  }
}

TEST(JobPlanTest, WhatDoesNotFitTheDeviceSaysByHowMuchAndWhatWouldHelp) {
  TrainSpec spec = Spec(16384);
  spec.tokens_per_micro_batch = 16384;
  spec.device_budget_bytes = kGiB + kGiB / 2;
  const PlanTarget target{.device = "rtx-3090", .host_memory_bytes = 512 * kGiB};
  const JobPlan plan = *PlanJob(spec, Model(28, 1536, 12, 2, 8960, 151936), target);
  ASSERT_FALSE(plan.fits);
  EXPECT_EQ(plan.shortfall_field, "memory.device_budget");
  EXPECT_THAT(plan.shortfall, StartsWith("the device lacks"));
  EXPECT_THAT(plan.shortfall, HasSubstr("train.tokens_per_micro_batch: "));
  EXPECT_GT(Total(plan.device_memory), *spec.device_budget_bytes);

  const std::string key = "train.tokens_per_micro_batch: ";
  spec.tokens_per_micro_batch =
      std::stoll(plan.shortfall.substr(plan.shortfall.find(key) + key.size()));
  EXPECT_TRUE(PlanJob(spec, Model(28, 1536, 12, 2, 8960, 151936), target)->fits);
}

// What a text says after `key`, up to the unit GiB.
int64_t GibibytesAfter(const std::string& text, const std::string& key) {
  const size_t begin = text.find(key);
  return begin == std::string::npos ? 0 : std::stoll(text.substr(begin + key.size())) * kGiB;
}

TEST(JobPlanTest, ABudgetIsAdvisedOnlyAsFarAsTheMachineGoes) {
  const std::string budget = "memory.host_budget: ", machine = "a machine that gives the job ";
  TrainSpec spec = Spec(2048);
  spec.host_budget_bytes = kGiB;
  PlanTarget target{.device = "rtx-3090", .host_memory_bytes = 512 * kGiB};
  JobPlan plan = *PlanJob(spec, Qwen7B(), target);
  ASSERT_FALSE(plan.fits);
  const int64_t needed = GibibytesAfter(plan.shortfall, budget);
  ASSERT_GT(needed, kGiB) << plan.shortfall;
  spec.host_budget_bytes = needed;
  EXPECT_TRUE(PlanJob(spec, Qwen7B(), target)->fits);

  // The machine is what holds it.
  target.host_memory_bytes = 8 * kGiB;
  plan = *PlanJob(spec, Qwen7B(), target);
  EXPECT_THAT(plan.shortfall, Not(HasSubstr(budget)));
  EXPECT_EQ(GibibytesAfter(plan.shortfall, machine), needed) << plan.shortfall;

  // Neither alone is enough.
  spec.host_budget_bytes = kGiB;
  plan = *PlanJob(spec, Qwen7B(), target);
  EXPECT_THAT(plan.shortfall, Not(HasSubstr(budget)));
  EXPECT_THAT(plan.shortfall, Not(HasSubstr(machine)));

  spec = Spec(1024, 128);
  spec.device_budget_bytes = 1;
  plan = *PlanJob(spec, Small(), {.host_memory_bytes = 4 * kGiB});
  EXPECT_THAT(plan.shortfall, HasSubstr("may take 1 byte"));
  EXPECT_THAT(plan.shortfall, ContainsRegex("memory.device_budget: [0-9]+MiB"));
}

TEST(JobPlanTest, WhereDeviceAndHostAreOneMemoryWhatTheyLackTogetherIsTold) {
  TrainSpec spec = Spec(8192, 1024);
  spec.device = "cpu-discrete";
  // From what is hopeless to what fits.
  for (int64_t mib = 512;; mib += 256) {
    const JobPlan plan =
        *PlanJob(spec, Model(24, 896, 14, 2, 4864, 151936), {.host_memory_bytes = mib << 20});
    if (plan.fits) break;
    EXPECT_THAT(plan.shortfall, HasSubstr("lacks")) << mib;
    const int64_t enough = GibibytesAfter(plan.shortfall, "a machine that gives the job ");
    ASSERT_GT(enough, 0) << plan.shortfall;
    if (mib % 2048 != 0) continue;
    EXPECT_TRUE(
        PlanJob(spec, Model(24, 896, 14, 2, 4864, 151936), {.host_memory_bytes = enough})->fits)
        << plan.shortfall;
  }
}

TEST(JobPlanTest, TheLargestThatFitAreTheLargest) {
  TrainSpec spec = Spec(32768, 512);
  spec.device_budget_bytes = kGiB;
  const ModelSpec model = Model(24, 896, 14, 2, 4864, 151936);
  const PlanTarget target{.device = "rtx-3060-12gb"};
  const JobPlan plan = *PlanJob(spec, model, target);
  ASSERT_TRUE(plan.fits) << plan.shortfall;
  TrainSpec other = spec;
  other.tokens_per_micro_batch = plan.largest_micro_batch_tokens;
  EXPECT_TRUE(PlanJob(other, model, target)->fits);
  ASSERT_LT(plan.largest_micro_batch_tokens, spec.tokens_per_step);
  other.tokens_per_micro_batch = 2 * plan.largest_micro_batch_tokens;
  EXPECT_FALSE(PlanJob(other, model, target)->fits);
  other = spec;
  other.sequence_length = plan.largest_sequence_length;
  EXPECT_TRUE(PlanJob(other, model, target)->fits);
}

TEST(JobPlanTest, ARunThatGoesOnKeepsTheChunksOfItsHead) {
  TrainSpec spec = Spec(1024, 128);
  spec.head_token_chunk = 96;
  spec.head_vocab_tile = 512;
  const absl::StatusOr<JobPlan> plan = PlanJob(spec, Small(), {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->plan.shape.token_chunk, 96);
  EXPECT_EQ(plan->plan.shape.vocab_tile, 512);
}

TEST(JobPlanTest, ThisMachineAnswersForItself) {
  TrainSpec spec = Spec(1024, 128);
  const JobPlan plan = *PlanJob(spec, Small(), {});
  ASSERT_TRUE(plan.fits) << plan.shortfall;
  EXPECT_EQ(plan.trace_json, "");
  EXPECT_EQ(plan.device, "cpu");
  EXPECT_TRUE(plan.plan.unified);
  EXPECT_GT(plan.tokens_per_second, 0);

  spec.device = "cpu-discrete";
  spec.link_gbps = 1;
  const JobPlan discrete = *PlanJob(spec, Small(), {});
  EXPECT_EQ(discrete.device, "cpu-discrete");
  EXPECT_FALSE(discrete.plan.unified);
  EXPECT_GT(discrete.step_seconds, plan.step_seconds);

  spec.plan.head = HeadPlacement::kTiled;
  const JobPlan tiled = *PlanJob(spec, Small(), {});
  ASSERT_TRUE(tiled.fits) << tiled.shortfall;
  EXPECT_EQ(tiled.plan.head, HeadPlacement::kTiled);
  EXPECT_EQ(tiled.plan.shape.vocab_tile, 256);
  spec.plan.head.reset();

  const JobPlan tight = *PlanJob(spec, Qwen7B(), {.host_memory_bytes = 8 * kGiB});
  EXPECT_FALSE(tight.fits);
  EXPECT_THAT(tight.shortfall, HasSubstr("the host lacks"));
}

TEST(JobPlanTest, AnUnknownDeviceABudgetBeyondItAndContradictionsAreRefused) {
  TrainSpec spec = Spec(1024, 128);
  absl::Status status = PlanJob(spec, Small(), {.device = "rtx-9999"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), StartsWith("device: "));
  EXPECT_THAT(std::string(status.message()), HasSubstr("rtx-3080-10gb"));

  spec.device_budget_bytes = 64 * kGiB;
  status = PlanJob(spec, Small(), {.device = "rtx-3090"}).status();
  EXPECT_THAT(std::string(status.message()), StartsWith("memory.device_budget: "));
  spec.device_budget_bytes.reset();

  spec.plan.resident_units = 40;
  status = PlanJob(spec, Small(), {.device = "rtx-3090"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), StartsWith("memory.plan.resident_units: 40"));
}

TEST(JobPlanTest, TheTextHasTablesAndTheVerdict) {
  const PlanTarget target{.device = "rtx-3060-12gb"};
  const std::string text = ExplainPlan(*PlanJob(Spec(8192), Small(), target));
  for (const char* part : {"memory", "weights", "budget", "tokens/s", "bound by", "next best"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_THAT(text, Not(HasSubstr("does not fit")));
  EXPECT_THAT(ExplainPlan(*PlanJob(Spec(8192), Qwen14B(), target)), HasSubstr("does not fit: "));
}

}  // namespace
}  // namespace millrace
