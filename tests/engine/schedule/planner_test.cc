#include "engine/schedule/planner.h"

#include <algorithm>
#include <random>
#include <string>

#include "engine/schedule/builder.h"
#include "engine/schedule/verifier.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/schedule/random_plans.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr size_t kPlenty = size_t{1} << 40;

ScheduledModel SmallModel(int64_t layers = 3) {
  ScheduledModel model;
  model.spec.model_type = "llama";
  model.spec.vocab_size = 512;
  model.spec.hidden_size = 64;
  model.spec.num_layers = layers;
  model.spec.num_heads = 4;
  model.spec.num_kv_heads = 2;
  model.spec.head_dim = model.spec.rotary_width = 16;
  model.spec.intermediate_size = 160;
  model.spec.max_positions = 256;
  model.compute_dtype = DType::kBF16;
  model.layouts = MakeSlabLayouts(model.spec);
  model.gradient_dtypes.assign(model.layouts.size(), DType::kBF16);
  model.gradient_dtypes[0] = DType::kF32;
  return model;
}

StepShape SmallShape(int64_t micro_batches = 2) {
  return {.micro_batches = micro_batches,
          .tokens_per_micro_batch = 128,
          .longest_document = 64,
          .token_chunk = 64,
          .vocab_tile = 256,
          .z_loss = 0,
          .clip = true};
}

// A device whose products of these sizes take about as long as a block's upload.
DeviceProfile SmallDevice(double link_factor) {
  DeviceProfile profile = *FindDeviceProfile("rtx-3090", DType::kBF16);
  profile.op_overhead_seconds = 0;
  for (RateGrid& rate : profile.products) rate = RateGrid(1e12);
  profile.link.latency_seconds = 0;
  profile.link.to_device *= link_factor;
  profile.link.to_host *= link_factor;
  profile.link.both_ways *= link_factor;
  return profile;
}

PlanRequest Request(const ScheduledModel& model, const DeviceProfile& profile, size_t budget) {
  return {.unified = false,
          .device_budget_bytes = budget,
          .host_budget_bytes = kPlenty,
          .total_budget_bytes = kPlenty,
          .choices = {},
          .profile = &profile,
          .update = UpdateWorkOf(model.layouts, Recipe::kFull, model.compute_dtype)};
}

double Seconds(const ScheduledModel& model, const Plan& plan, const PlanRequest& request) {
  return Simulate(BuildStepSchedule(model, plan, true),
                  CostModel(model, plan, *request.profile, request.update), plan.unified)
      .seconds;
}

// Of all plans there are, those with whole heads in layer-major order; and the least time of one
// that fits.
double LeastSeconds(const ScheduledModel& model, const StepShape& shape,
                    const PlanRequest& request) {
  double least = 1e9;
  Plan plan{.shape = shape, .unified = false};
  const int64_t passes = model.num_blocks() * shape.micro_batches;
  for (HeadPlacement head : {HeadPlacement::kWhole, HeadPlacement::kTiled}) {
    plan.head = head;
    for (int resident = 0; resident <= model.num_blocks(); ++resident) {
      plan.resident_units = resident;
      for (int64_t kept = 0; kept <= passes; ++kept) {
        plan.kept_passes = kept;
        for (int64_t selective = 0; selective <= passes - kept; ++selective) {
          plan.selective_passes = selective;
          for (int64_t offloaded = 0; offloaded <= passes; ++offloaded) {
            plan.offloaded_passes = offloaded;
            const Schedule schedule = BuildStepSchedule(model, plan, true);
            if (schedule.device_bytes > request.device_budget_bytes) continue;
            least = std::min(
                least,
                Simulate(schedule, CostModel(model, plan, *request.profile, request.update), false)
                    .seconds);
          }
        }
      }
    }
  }
  return least;
}

TEST(PlanStepTest, NoPlanOfATinyModelIsMuchFasterThanTheOneThatIsChosen) {
  const ScheduledModel model = SmallModel(2);
  const StepShape shape = SmallShape(2);
  for (double link : {0.03, 0.3, 3.0}) {
    const DeviceProfile profile = SmallDevice(link);
    PlanRequest request = Request(model, profile, kPlenty);
    const LeastMemory least = *LeastMemoryOf(model, shape, request);
    const Plan most = PlanStep(model, shape, request)->plan;
    for (double share : {0.0, 0.3, 0.6}) {
      request.device_budget_bytes =
          least.device_bytes +
          static_cast<size_t>(share * static_cast<double>(3 * least.device_bytes));
      const absl::StatusOr<PlannedStep> step = PlanStep(model, shape, request);
      ASSERT_TRUE(step.ok()) << step.status();
      EXPECT_LE(step->plan.device_bytes, request.device_budget_bytes);
      EXPECT_LE(step->simulation.seconds, 1.03 * LeastSeconds(model, shape, request))
          << link << " " << share;
    }
    EXPECT_GT(most.device_bytes, 0);
  }
}

TEST(PlanStepTest, EveryPlanKeepsToItsBudgetsAndIsSafe) {
  std::mt19937 random(7);
  const DeviceProfile profile = SmallDevice(0.2);
  for (int trial = 0; trial < 60; ++trial) {
    const ScheduledModel model = RandomModel(random);
    const StepShape shape = RandomShape(random);
    PlanRequest request = Request(model, profile, kPlenty);
    request.unified = trial % 3 == 0;
    const LeastMemory least = *LeastMemoryOf(model, shape, request);
    request.device_budget_bytes = least.device_bytes * (1 + random() % 3);
    const absl::StatusOr<PlannedStep> step = PlanStep(model, shape, request);
    ASSERT_TRUE(step.ok()) << step.status();
    EXPECT_LE(step->schedule.device_bytes, request.device_budget_bytes);
    const absl::Status safe = Verify(step->schedule, request.device_budget_bytes);
    EXPECT_TRUE(safe.ok()) << safe;
    EXPECT_TRUE(AnyPlanFits(model, shape, request));
    request.device_budget_bytes = least.device_bytes - 1;
    EXPECT_FALSE(AnyPlanFits(model, shape, request));
  }
}

TEST(PlanStepTest, MoreMemoryIsNeverSlower) {
  const ScheduledModel model = SmallModel(4);
  const StepShape shape = SmallShape(3);
  const DeviceProfile profile = SmallDevice(0.1);
  PlanRequest request = Request(model, profile, kPlenty);
  const size_t least = LeastMemoryOf(model, shape, request)->device_bytes;
  double last = 1e9;
  for (int i = 0; i < 12; ++i) {
    request.device_budget_bytes = least + static_cast<size_t>(i) * least / 4;
    const double seconds = PlanStep(model, shape, request)->simulation.seconds;
    EXPECT_LE(seconds, last * 1.02) << i;
    last = seconds;
  }
}

TEST(PlanStepTest, AFasterLinkOrDeviceIsNeverSlower) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 40; ++trial) {
    const ScheduledModel model = RandomModel(random);
    const StepShape shape = RandomShape(random);
    const DeviceProfile slow = SmallDevice(0.1), fast = SmallDevice(0.2);
    const PlanRequest request = Request(model, slow, kPlenty);
    const Plan plan = PlanStep(model, shape, request)->plan;
    PlanRequest faster = request;
    faster.profile = &fast;
    EXPECT_LE(Seconds(model, plan, faster), Seconds(model, plan, request) * (1 + 1e-6));
  }
}

TEST(PlanStepTest, TiesGoToThePlanWithLessMemory) {
  // Everything hides behind compute: nothing needs to stay.
  const ScheduledModel model = SmallModel(4);
  const DeviceProfile profile = SmallDevice(1000);
  const PlannedStep step = *PlanStep(model, SmallShape(), Request(model, profile, kPlenty));
  EXPECT_EQ(step.plan.resident_units, 0);
  EXPECT_EQ(step.plan.weight_slots, 2);
}

TEST(PlanStepTest, ChoicesOfTheJobAreKeptAndMarkedFixed) {
  const ScheduledModel model = SmallModel(4);
  const DeviceProfile profile = SmallDevice(1);
  PlanRequest request = Request(model, profile, kPlenty);
  request.choices = {.order = Order::kLayerMajor,
                     .weight_slots = 3,
                     .resident_units = 2,
                     .activations = Activations::kSelective,
                     .inputs_on_host = true,
                     .head = HeadPlacement::kTiled};
  const PlannedStep step = *PlanStep(model, SmallShape(), request);
  EXPECT_EQ(step.plan.weight_slots, 3);
  EXPECT_EQ(step.plan.resident_units, 2);
  EXPECT_EQ(step.plan.selective_passes, 8);
  EXPECT_EQ(step.plan.kept_passes, 0);
  EXPECT_EQ(step.plan.offloaded_passes, 8);
  EXPECT_EQ(step.plan.head, HeadPlacement::kTiled);
  for (const PlanAlternative& alternative : step.alternatives) {
    EXPECT_TRUE(alternative.fixed) << alternative.choice;
    EXPECT_EQ(alternative.next_best, "") << alternative.choice;
  }
}

TEST(PlanStepTest, TellsTheNextBestOfEachChoiceAndThatItIsNoBetter) {
  const ScheduledModel model = SmallModel(4);
  const DeviceProfile profile = SmallDevice(0.1);
  const PlannedStep step = *PlanStep(model, SmallShape(), Request(model, profile, kPlenty));
  int told = 0;
  for (const PlanAlternative& alternative : step.alternatives) {
    EXPECT_GE(alternative.extra_seconds, 0);
    if (alternative.next_best.empty()) continue;
    ++told;
    EXPECT_NE(alternative.next_best, alternative.value) << alternative.choice;
  }
  EXPECT_GE(told, 4);
}

TEST(PlanStepTest, HostMemoryIsABudgetToo) {
  const ScheduledModel model = SmallModel(4);
  const StepShape shape = SmallShape(4);
  const DeviceProfile profile = SmallDevice(1);
  PlanRequest request = Request(model, profile, kPlenty);
  const LeastMemory least = *LeastMemoryOf(model, shape, request);
  request.host_budget_bytes = least.host_bytes;
  EXPECT_EQ(PlanStep(model, shape, request)->plan.host_bytes, least.host_bytes);
  request.host_budget_bytes = least.host_bytes - 1;
  const absl::Status status = PlanStep(model, shape, request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("host memory"));
}

TEST(PlanStepTest, ContradictionsAreToldWithTheFieldAndTheFix) {
  const ScheduledModel model = SmallModel(12);
  const StepShape shape = SmallShape();
  const auto message = [&](const PlanChoices& choices) {
    const absl::Status status = CheckChoices(choices, model, shape);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  PlanChoices choices;
  choices.resident_units = 40;
  EXPECT_THAT(message(choices), StartsWith("memory.plan.resident_units: 40"));
  EXPECT_THAT(message(choices), HasSubstr("12 blocks"));
  choices = {};
  choices.weight_slots = 1;
  EXPECT_THAT(message(choices), StartsWith("memory.plan.weight_slots: 1"));
  choices.weight_slots = 13;
  EXPECT_THAT(message(choices), StartsWith("memory.plan.weight_slots: 13"));
  choices = {};
  choices.head = HeadPlacement::kTiled;
  choices.order = Order::kBatchMajor;
  EXPECT_THAT(message(choices), StartsWith("memory.plan.head: "));
  StepShape untiled = shape;
  untiled.vocab_tile = 0;
  choices.order.reset();
  EXPECT_THAT(std::string(CheckChoices(choices, model, untiled).message()),
              StartsWith("memory.plan.head: "));
  EXPECT_TRUE(CheckChoices({}, model, shape).ok());
}

TEST(MakePlanTest, WithPlentyOfMemoryEverythingIsKept) {
  const ScheduledModel model = SmallModel();
  const Plan plan = *MakePlan(model, SmallShape(), true, kPlenty);
  EXPECT_EQ(plan.kept_passes, 6);
  EXPECT_EQ(plan.order, Order::kLayerMajor);
  const Plan exact = *MakePlan(model, SmallShape(), true, plan.device_bytes);
  EXPECT_EQ(exact.kept_passes, 6);
  const Plan less = *MakePlan(model, SmallShape(), true, plan.device_bytes - 1);
  EXPECT_LT(less.kept_passes, 6);
  EXPECT_LE(less.device_bytes, plan.device_bytes - 1);
}

}  // namespace
}  // namespace millrace
