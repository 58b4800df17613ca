#include <random>
#include <set>

#include "engine/model/head.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "engine/schedule/builder.h"
#include "engine/schedule/planner.h"
#include "engine/schedule/verifier.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

constexpr size_t kPlenty = size_t{1} << 40;

// A model drawn from `random`, small enough that thousands are quick.
ScheduledModel RandomModel(std::mt19937& random) {
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  ScheduledModel model;
  ModelSpec& spec = model.spec;
  spec.vocab_size = pick(2, 300);
  spec.head_dim = 2 * pick(1, 8);
  spec.num_kv_heads = pick(1, 3);
  spec.num_heads = spec.num_kv_heads * pick(1, 3);
  spec.hidden_size = spec.num_heads * spec.head_dim;
  spec.intermediate_size = pick(1, 100);
  spec.num_layers = pick(1, 7);
  spec.max_positions = 512;
  spec.tied_embeddings = pick(0, 1) == 1;
  spec.position = pick(0, 1) == 1 ? PositionKind::kRotary : PositionKind::kLearned;
  spec.norm = pick(0, 1) == 1 ? NormKind::kRmsNorm : NormKind::kLayerNorm;
  spec.norm_bias = spec.norm == NormKind::kLayerNorm;
  model.compute_dtype = pick(0, 1) == 1 ? DType::kBF16 : DType::kF32;
  model.layouts = MakeSlabLayouts(spec);
  model.gradient_dtypes.assign(model.layouts.size(), model.compute_dtype);
  model.gradient_dtypes[0] = DType::kF32;
  model.ops_workspace_bytes = 4096 * pick(0, 3);
  return model;
}

StepShape RandomShape(std::mt19937& random) {
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  StepShape shape;
  shape.micro_batches = pick(1, 4);
  shape.longest_document = pick(1, 32);
  shape.tokens_per_micro_batch = shape.longest_document * pick(1, 4);
  shape.token_chunk = pick(1, static_cast<int>(shape.tokens_per_micro_batch));
  shape.clip = pick(0, 1) == 1;
  return shape;
}

ScheduledModel SmallModel() {
  std::mt19937 random(1);
  ScheduledModel model = RandomModel(random);
  model.spec.num_layers = 3;
  model.spec.tied_embeddings = false;
  model.layouts = MakeSlabLayouts(model.spec);
  model.gradient_dtypes.assign(model.layouts.size(), model.compute_dtype);
  model.gradient_dtypes[0] = DType::kF32;
  return model;
}

StepShape SmallShape() {
  return {.micro_batches = 2,
          .tokens_per_micro_batch = 16,
          .longest_document = 8,
          .token_chunk = 8,
          .clip = true};
}

int Count(const Schedule& schedule, Opcode opcode) {
  int count = 0;
  for (const Instruction& instruction : schedule.instructions)
    count += instruction.opcode == opcode;
  return count;
}

TEST(ScheduleTest, EveryScheduleOfRandomModelsAndPlansIsSafeAndWithinItsPlan) {
  std::mt19937 random(42);
  for (int trial = 0; trial < 2000; ++trial) {
    const ScheduledModel model = RandomModel(random);
    const StepShape shape = RandomShape(random);
    const bool unified = random() % 2 == 0;
    absl::StatusOr<Plan> plan = MakePlan(model, shape, unified, kPlenty);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->kept_passes, model.num_blocks() * shape.micro_batches);
    plan->kept_passes = 1 + random() % plan->kept_passes;
    plan->weight_slots = 1 + random() % 3;
    for (bool pending : {false, true}) {
      const Schedule schedule = BuildStepSchedule(model, *plan, pending);
      ASSERT_TRUE(Verify(schedule, schedule.device_bytes).ok())
          << Verify(schedule, schedule.device_bytes) << "\n"
          << ToString(schedule);
    }
    const Schedule forward = BuildForwardSchedule(model, *plan);
    ASSERT_TRUE(Verify(forward, forward.device_bytes).ok()) << Verify(forward, kPlenty);
    ASSERT_LE(forward.device_bytes, BuildStepSchedule(model, *plan, true).device_bytes);
  }
}

TEST(ScheduleTest, WeightsTravelTwiceAStepAndGradientsOnceWhateverTheMicroBatches) {
  const ScheduledModel model = SmallModel();
  for (int64_t micro_batches : {1, 2, 5}) {
    StepShape shape = SmallShape();
    shape.micro_batches = micro_batches;
    const Plan plan = *MakePlan(model, shape, /*unified=*/false, kPlenty);
    const Schedule schedule = BuildStepSchedule(model, plan, true);
    // Each block twice, the head once; the embedding never.
    EXPECT_EQ(Count(schedule, Opcode::kUpload), 2 * 3 + 1);
    EXPECT_EQ(Count(schedule, Opcode::kDownloadGradient), 3 + 1);
    EXPECT_EQ(Count(schedule, Opcode::kUpdate), 5);
  }
}

TEST(ScheduleTest, RecomputesExactlyTheBlocksWhoseActivationsAreNotKept) {
  const ScheduledModel model = SmallModel();
  Plan plan = *MakePlan(model, SmallShape(), true, kPlenty);
  for (int64_t slots = 1; slots <= 6; ++slots) {
    plan.kept_passes = slots;
    EXPECT_EQ(Count(BuildStepSchedule(model, plan, false), Opcode::kBlockRecompute), 6 - slots);
  }
}

TEST(ScheduleTest, WithoutClippingUnitsAreUpdatedWithinTheStep) {
  const ScheduledModel model = SmallModel();
  StepShape shape = SmallShape();
  shape.clip = false;
  const Plan plan = *MakePlan(model, shape, true, kPlenty);
  const Schedule schedule = BuildStepSchedule(model, plan, false);
  EXPECT_EQ(Count(schedule, Opcode::kUpdate), 5);
  EXPECT_EQ(schedule.instructions.back().opcode, Opcode::kUpdate);
}

TEST(PlannerTest, KeepsAsManyActivationsAsTheBudgetHolds) {
  const ScheduledModel model = SmallModel();
  const StepShape shape = SmallShape();
  const Plan most = *MakePlan(model, shape, true, kPlenty);
  const Plan exact = *MakePlan(model, shape, true, most.device_bytes);
  EXPECT_EQ(exact.kept_passes, most.kept_passes);
  const Plan fewer = *MakePlan(model, shape, true, most.device_bytes - 1);
  EXPECT_EQ(fewer.kept_passes, most.kept_passes - 1);
  EXPECT_LE(fewer.device_bytes, most.device_bytes - 1);
}

TEST(PlannerTest, MemoryByPurposeAddsUpToThePlan) {
  const Plan plan = *MakePlan(SmallModel(), SmallShape(), false, kPlenty);
  size_t sum = 0;
  for (const MemoryItem& item : plan.memory) sum += item.bytes;
  EXPECT_EQ(sum, plan.device_bytes);
}

TEST(PlannerTest, SaysByHowMuchABudgetIsTooSmallAndWhatHelps) {
  const absl::StatusOr<Plan> plan = MakePlan(SmallModel(), SmallShape(), true, 1000);
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(plan.status().message()), HasSubstr("more than the budget of 1000"));
  EXPECT_THAT(std::string(plan.status().message()), HasSubstr("train.tokens_per_micro_batch"));
}

TEST(PlannerTest, MicroBatchesAreWholeSequencesThatDivideTheStep) {
  ModelSpec spec = SmallModel().spec;
  StepShape shape = ChooseStepShape(spec, 16384, std::nullopt, 512, true, DType::kBF16);
  EXPECT_EQ(shape.tokens_per_micro_batch, 4096);
  EXPECT_EQ(shape.micro_batches, 4);
  shape = ChooseStepShape(spec, 7 * 1000, std::nullopt, 1000, true, DType::kBF16);
  EXPECT_EQ(shape.tokens_per_micro_batch, 1000);
  shape = ChooseStepShape(spec, 8192, std::nullopt, 8192, true, DType::kBF16);
  EXPECT_EQ(shape.tokens_per_micro_batch, 8192);
  shape = ChooseStepShape(spec, 2048, 512, 256, false, DType::kBF16);
  EXPECT_EQ(shape.tokens_per_micro_batch, 512);
  EXPECT_EQ(shape.micro_batches, 4);
}

TEST(PlannerTest, TheHeadUsesAtMost64MebibytesForAnyVocabulary) {
  constexpr int kThreads = 2;
  ModelSpec spec = SmallModel().spec;
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    for (const int64_t hidden : {256, 1024, 3584, 8192}) {
      for (const int64_t vocab : {257, 32000, 50257, 152064, 1000000}) {
        for (const int64_t tokens : {1, 50, 100, 1024, 65536}) {
          spec.hidden_size = hidden;
          spec.vocab_size = vocab;
          const StepShape shape = ChooseStepShape(spec, tokens, tokens, tokens, true, compute);
          const OpsLimits limits = {.tokens = tokens,
                                    .hidden = hidden,
                                    .vocab = vocab,
                                    .token_chunk = shape.token_chunk,
                                    .vocab_tile = shape.vocab_tile};
          EXPECT_LE(CpuOpsWorkspaceBytes(limits, compute, kThreads) +
                        HeadScratchBytes(spec, tokens, shape.token_chunk, compute),
                    64 << 20)
              << NameOf(compute) << " " << hidden << " x " << vocab << ", " << tokens
              << " tokens in chunks of " << shape.token_chunk << ", tiles of " << shape.vocab_tile;
          EXPECT_LE(shape.token_chunk, tokens);
          EXPECT_LT(shape.vocab_tile, vocab);
          EXPECT_TRUE(shape.vocab_tile > 0 || shape.token_chunk >= std::min<int64_t>(tokens, 256))
              << vocab;
        }
      }
    }
  }
  spec.hidden_size = 768;
  spec.vocab_size = 50257;
  const StepShape gpt2 = ChooseStepShape(spec, 1024, 1024, 256, true, DType::kBF16);
  EXPECT_EQ(gpt2.token_chunk, 512);
  EXPECT_EQ(gpt2.vocab_tile, 0);
}

// --- Planted faults -----------------------------------------------------------------------------

class PlantedFaultTest : public ::testing::TestWithParam<bool> {
 protected:
  PlantedFaultTest() {
    plan_ = *MakePlan(model_, SmallShape(), GetParam(), kPlenty);
    plan_.kept_passes = 2;
    schedule_ = BuildStepSchedule(model_, plan_, true);
  }
  ScheduledModel model_ = SmallModel();
  Plan plan_;
  Schedule schedule_;
};
INSTANTIATE_TEST_SUITE_P(UnifiedAndDiscrete, PlantedFaultTest, ::testing::Bool());

TEST_P(PlantedFaultTest, EveryDroppedWaitIsCaught) {
  int dropped = 0;
  for (size_t i = 0; i < schedule_.instructions.size(); ++i) {
    for (size_t w = 0; w < schedule_.instructions[i].waits.size(); ++w) {
      Schedule faulty = schedule_;
      std::vector<int>& waits = faulty.instructions[i].waits;
      waits.erase(waits.begin() + static_cast<long>(w));
      EXPECT_FALSE(Verify(faulty, kPlenty).ok()) << "instruction " << i << "\n"
                                                 << ToString(schedule_);
      ++dropped;
    }
  }
  EXPECT_GT(dropped, 10);
}

TEST_P(PlantedFaultTest, EveryUndersizedBufferIsCaught) {
  for (size_t b = 0; b < schedule_.buffers.size(); ++b) {
    if (schedule_.buffers[b].bytes == 0) continue;
    Schedule faulty = schedule_;
    --faulty.buffers[b].bytes;
    EXPECT_FALSE(Verify(faulty, kPlenty).ok()) << NameOf(faulty.buffers[b].kind);
  }
}

TEST_P(PlantedFaultTest, EarlyReleaseIsCaught) {
  // A residual that backward needs given the place of one that forward writes later.
  std::vector<size_t> residuals;
  for (size_t b = 0; b < schedule_.buffers.size(); ++b) {
    if (schedule_.buffers[b].kind == BufferKind::kResidual) residuals.push_back(b);
  }
  ASSERT_GT(residuals.size(), 4u);
  Schedule faulty = schedule_;
  faulty.buffers[residuals[0]].offset = faulty.buffers[residuals[4]].offset;
  const absl::Status status = Verify(faulty, kPlenty);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("residual[0]"));
}

TEST_P(PlantedFaultTest, EveryDroppedWriteThatIsReadIsCaught) {
  // Whatever is read from the arena must have been written.
  std::set<int> inputs;
  for (int b = 0; b < static_cast<int>(schedule_.buffers.size()); ++b) {
    const BufferKind kind = schedule_.buffers[b].kind;
    if (kind == BufferKind::kResidual || kind == BufferKind::kPositions) inputs.insert(b);
  }
  for (int b : inputs) {
    Schedule faulty = schedule_;
    for (Instruction& instruction : faulty.instructions) {
      std::erase_if(instruction.accesses,
                    [&](const Access& access) { return access.write && access.buffer == b; });
    }
    EXPECT_FALSE(Verify(faulty, kPlenty).ok()) << b;
  }
}

TEST_P(PlantedFaultTest, AnOperandThatIsNotDeclaredIsCaught) {
  for (Instruction& instruction : schedule_.instructions) {
    if (instruction.opcode != Opcode::kBlockBackward) continue;
    std::erase_if(instruction.accesses,
                  [&](const Access& access) { return access.buffer == instruction.saved; });
    break;
  }
  EXPECT_THAT(std::string(Verify(schedule_, kPlenty).message()), HasSubstr("operand"));
}

TEST_P(PlantedFaultTest, AnArenaBeyondTheBudgetIsCaught) {
  EXPECT_EQ(Verify(schedule_, schedule_.device_bytes - 1).code(),
            absl::StatusCode::kResourceExhausted);
  schedule_.device_bytes -= 1;
  EXPECT_FALSE(Verify(schedule_, kPlenty).ok());
}

TEST_P(PlantedFaultTest, WaitingForALaterInstructionIsCaught) {
  schedule_.instructions[1].waits = {5};
  EXPECT_FALSE(Verify(schedule_, kPlenty).ok());
}

}  // namespace
}  // namespace millrace
