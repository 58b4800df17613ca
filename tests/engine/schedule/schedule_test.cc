#include <algorithm>
#include <random>
#include <set>

#include "engine/model/head.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "engine/schedule/builder.h"
#include "engine/schedule/planner.h"
#include "engine/schedule/verifier.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/schedule/random_plans.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

constexpr size_t kPlenty = size_t{1} << 40;

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

// A plan of a discrete device with nothing kept or resident.
Plan LeanPlan(const StepShape& shape) {
  Plan plan;
  plan.shape = shape;
  plan.unified = false;
  plan.reuse_at_turn = false;
  plan.update_time = shape.clip ? UpdateTime::kBeforeNextUpload : UpdateTime::kAsGradientLands;
  return plan;
}

// Uploads of blocks, and bytes of the head that are uploaded.
int BlockUploads(const ScheduledModel& model, const Schedule& schedule) {
  int count = 0;
  for (const Instruction& i : schedule.instructions) {
    count += i.opcode == Opcode::kUpload && i.unit >= 1 && i.unit < model.head();
  }
  return count;
}

TEST(ScheduleTest, WeightsTravelTwiceAStepAndGradientsOnceWhateverTheMicroBatches) {
  const ScheduledModel model = SmallModel();
  for (int64_t micro_batches : {1, 2, 5}) {
    StepShape shape = SmallShape();
    shape.micro_batches = micro_batches;
    const Schedule schedule = BuildStepSchedule(model, LeanPlan(shape), true);
    EXPECT_EQ(BlockUploads(model, schedule), 2 * 3);
    int64_t head_up = 0, head_down = 0, blocks_down = 0;
    for (const Instruction& i : schedule.instructions) {
      if (i.opcode == Opcode::kUpload && i.unit == model.head()) head_up += i.count;
      if (i.opcode != Opcode::kDownloadGradient) continue;
      (i.unit == model.head() ? head_down : blocks_down) += i.count;
    }
    EXPECT_EQ(head_up, model.layouts.back().count);
    EXPECT_EQ(head_down, model.layouts.back().count);
    EXPECT_EQ(blocks_down, 3 * model.layouts[1].count);
    EXPECT_EQ(Count(schedule, Opcode::kUpdate), 5);
  }
}

// So that the verifier and traces know what each range of a long transfer is.
TEST(ScheduleTest, RangesOfATransferSayWhatTheyTouch) {
  const ScheduledModel model = SmallModel();
  Plan whole = LeanPlan(SmallShape()), tiled = whole;
  tiled.shape.vocab_tile = 7;
  tiled.head = HeadPlacement::kTiled;
  for (const Plan& plan : {whole, tiled}) {
    const Schedule schedule = BuildStepSchedule(model, plan, true);
    const size_t size = SizeOf(model.compute_dtype);
    size_t end = 0;  // of what has come down of the head's gradient
    int ranges = 0;
    for (const Instruction& i : schedule.instructions) {
      if (i.opcode != Opcode::kDownloadGradient || i.unit != model.head()) continue;
      const Access& kept = i.accesses.back();
      EXPECT_EQ(kept.buffer, i.output);
      EXPECT_EQ(kept.bytes, static_cast<size_t>(i.count) * size);
      EXPECT_EQ(kept.offset, static_cast<size_t>(i.begin) * size);
      end = std::max(end, kept.offset + kept.bytes);
      ++ranges;
    }
    EXPECT_GT(ranges, 1);
    const TensorLayout& projection = model.layouts.back().tensors.back();
    const int64_t count = plan.head == HeadPlacement::kTiled
                              ? projection.offset + projection.count()
                              : model.layouts.back().count;
    EXPECT_EQ(end, static_cast<size_t>(count) * size);
  }
}

TEST(ScheduleTest, WhatIsResidentOrStillThereAtTheTurnTravelsOnce) {
  const ScheduledModel model = SmallModel();
  Plan plan = LeanPlan(SmallShape());
  plan.reuse_at_turn = true;
  EXPECT_EQ(BlockUploads(model, BuildStepSchedule(model, plan, true)), 2 * 3 - 2);
  for (int resident = 0; resident <= 3; ++resident) {
    plan.reuse_at_turn = false;
    plan.resident_units = resident;
    EXPECT_EQ(BlockUploads(model, BuildStepSchedule(model, plan, true)), 2 * 3 - resident);
  }
}

TEST(ScheduleTest, BatchMajorBringsTheWeightsForEachMicroBatch) {
  const ScheduledModel model = SmallModel();
  Plan plan = LeanPlan(SmallShape());
  plan.order = Order::kBatchMajor;
  const Schedule schedule = BuildStepSchedule(model, plan, true);
  EXPECT_EQ(BlockUploads(model, schedule), 2 * 2 * 3);
  EXPECT_EQ(Count(schedule, Opcode::kFetchAccumulator), 3);
  EXPECT_EQ(Count(schedule, Opcode::kOffloadAccumulator), 3);
}

TEST(ScheduleTest, RecomputesExactlyThePassesWhoseActivationsAreNotKept) {
  const ScheduledModel model = SmallModel();
  Plan plan = LeanPlan(SmallShape());
  for (int64_t kept = 0; kept <= 6; ++kept) {
    for (int64_t selective = 0; selective <= 6 - kept; ++selective) {
      plan.kept_passes = kept;
      plan.selective_passes = selective;
      const Schedule schedule = BuildStepSchedule(model, plan, false);
      // Of either kind what the last pass left in the memory that they share is still there.
      EXPECT_EQ(Count(schedule, Opcode::kBlockRecompute),
                std::max<int64_t>(0, 5 - kept - selective));
      EXPECT_EQ(Count(schedule, Opcode::kBlockRemake), std::max<int64_t>(0, selective - 1));
    }
  }
}

TEST(ScheduleTest, OffloadedInputsGoAndComeOnce) {
  const ScheduledModel model = SmallModel();
  Plan plan = LeanPlan(SmallShape());
  for (int64_t offloaded = 0; offloaded <= 6; ++offloaded) {
    plan.offloaded_passes = offloaded;
    const Schedule schedule = BuildStepSchedule(model, plan, false);
    EXPECT_EQ(Count(schedule, Opcode::kFetchInput), offloaded);
    // The first block's are gathered in host memory.
    EXPECT_EQ(Count(schedule, Opcode::kOffloadInput), std::max<int64_t>(0, offloaded - 2));
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
    plan_ = LeanPlan(SmallShape());
    plan_.unified = GetParam();
    plan_.kept_passes = 2;
    plan_.selective_passes = 1;
    plan_.offloaded_passes = 4;
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

TEST_P(PlantedFaultTest, ARangeBeyondItsBuffersEndIsCaught) {
  int moved = 0;
  for (size_t i = 0; i < schedule_.instructions.size(); ++i) {
    for (size_t a = 0; a < schedule_.instructions[i].accesses.size(); ++a) {
      Schedule faulty = schedule_;
      Access& access = faulty.instructions[i].accesses[a];
      if (access.bytes == 0) continue;
      access.offset = faulty.buffers[access.buffer].bytes - access.bytes + 1;
      EXPECT_FALSE(Verify(faulty, kPlenty).ok()) << "instruction " << i;
      ++moved;
    }
  }
  EXPECT_GT(moved, 10);
}

TEST_P(PlantedFaultTest, EarlyReleaseIsCaught) {
  // What backward needs, given the place of what forward writes later.
  std::vector<size_t> saved;
  for (size_t b = 0; b < schedule_.buffers.size(); ++b) {
    if (schedule_.buffers[b].kind == BufferKind::kSaved) saved.push_back(b);
  }
  ASSERT_GT(saved.size(), 2u);
  Schedule faulty = schedule_;
  faulty.buffers[saved[0]].offset = faulty.buffers[saved[1]].offset;
  const absl::Status status = Verify(faulty, kPlenty);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("saved["));
}

TEST_P(PlantedFaultTest, EveryDroppedWriteThatIsReadIsCaught) {
  // Whatever is read from the arena must have been written.
  std::set<int> inputs;
  for (int b = 0; b < static_cast<int>(schedule_.buffers.size()); ++b) {
    const BufferKind kind = schedule_.buffers[b].kind;
    if (kind == BufferKind::kInput || kind == BufferKind::kPositions) inputs.insert(b);
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
  schedule_.device_bytes -= 4096;
  EXPECT_FALSE(Verify(schedule_, kPlenty).ok());
}

TEST_P(PlantedFaultTest, WaitingForALaterInstructionIsCaught) {
  schedule_.instructions[1].waits = {5};
  EXPECT_FALSE(Verify(schedule_, kPlenty).ok());
}

}  // namespace
}  // namespace millrace
