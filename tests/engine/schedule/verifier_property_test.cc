// Thousands of random models, shapes and plans: every schedule is proved safe, and every fault that
// is planted in one is found.
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/schedule/builder.h"
#include "engine/schedule/verifier.h"
#include "gtest/gtest.h"
#include "tests/engine/schedule/random_plans.h"

namespace millrace {
namespace {

constexpr int kTrials = 3000;

TEST(VerifierPropertyTest, EveryScheduleOfRandomModelsAndPlansIsSafe) {
  std::mt19937 random(42);
  for (int trial = 0; trial < kTrials; ++trial) {
    const ScheduledModel model = RandomModel(random);
    const Plan plan = RandomPlan(model, RandomShape(random), random);
    size_t step_bytes = 0;
    for (bool pending : {false, true}) {
      const Schedule schedule = BuildStepSchedule(model, plan, pending);
      const absl::Status status = Verify(schedule, schedule.device_bytes);
      ASSERT_TRUE(status.ok()) << "trial " << trial << ": " << status << "\n" << ToString(schedule);
      step_bytes = schedule.device_bytes;
      // A byte less is refused.
      if (step_bytes > 0) {
        ASSERT_EQ(Verify(schedule, step_bytes - 1).code(), absl::StatusCode::kResourceExhausted);
      }
    }
    const Schedule forward = BuildForwardSchedule(model, plan);
    const absl::Status status = Verify(forward, step_bytes);
    ASSERT_TRUE(status.ok()) << "trial " << trial << ": " << status << "\n" << ToString(forward);
  }
}

// A step with gradients that wait for their update, of a random plan.
Schedule RandomSchedule(std::mt19937& random) {
  const ScheduledModel model = RandomModel(random);
  return BuildStepSchedule(model, RandomPlan(model, RandomShape(random), random), true);
}

TEST(VerifierPropertyTest, EveryDroppedDependencyIsCaught) {
  std::mt19937 random(43);
  int dropped = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    Schedule schedule = RandomSchedule(random);
    std::vector<size_t> waiting;
    for (size_t i = 0; i < schedule.instructions.size(); ++i) {
      if (!schedule.instructions[i].waits.empty()) waiting.push_back(i);
    }
    if (waiting.empty()) continue;
    const size_t victim = waiting[random() % waiting.size()];
    std::vector<int>& waits = schedule.instructions[victim].waits;
    waits.erase(waits.begin() + static_cast<long>(random() % waits.size()));
    ASSERT_FALSE(Verify(schedule, schedule.device_bytes).ok())
        << "trial " << trial << " instruction " << victim << "\n"
        << ToString(schedule);
    ++dropped;
  }
  EXPECT_GT(dropped, kTrials / 2);
}

TEST(VerifierPropertyTest, EveryUndersizedBufferIsCaught) {
  std::mt19937 random(44);
  for (int trial = 0; trial < kTrials; ++trial) {
    Schedule schedule = RandomSchedule(random);
    // Of those that an instruction uses to their end.
    std::vector<int> full;
    for (const Instruction& instruction : schedule.instructions) {
      for (const Access& access : instruction.accesses) {
        if (access.bytes > 0 && access.bytes == schedule.buffers[access.buffer].bytes) {
          full.push_back(access.buffer);
        }
      }
    }
    const int victim = full[random() % full.size()];
    schedule.buffers[victim].bytes -= 1;
    ASSERT_FALSE(Verify(schedule, schedule.device_bytes).ok())
        << "trial " << trial << " " << NameOf(schedule.buffers[victim].kind);
  }
}

// Two buffers at the same place are fine only where one is done with before the other begins.
TEST(VerifierPropertyTest, EveryEarlyReleaseIsCaught) {
  std::mt19937 random(45);
  int caught = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    Schedule schedule = RandomSchedule(random);
    // Pairs of which the second is written between a write of the first and a read of that.
    std::vector<int> last_write(schedule.buffers.size(), -1);
    std::vector<std::pair<size_t, size_t>> clashes;
    std::vector<std::vector<int>> writes(schedule.buffers.size());
    for (int i = 0; i < static_cast<int>(schedule.instructions.size()); ++i) {
      for (const Access& access : schedule.instructions[i].accesses) {
        if (access.write) writes[access.buffer].push_back(i);
      }
    }
    const auto on_device = [&](size_t b) {
      return schedule.buffers[b].bytes > 0 &&
             SpaceOf(schedule.buffers[b].kind) == MemorySpace::kDevice;
    };
    for (int i = 0; i < static_cast<int>(schedule.instructions.size()); ++i) {
      for (const Access& access : schedule.instructions[i].accesses) {
        const size_t first = static_cast<size_t>(access.buffer);
        if (access.write || !on_device(first) || last_write[first] < 0) continue;
        for (size_t second = 0; second < writes.size(); ++second) {
          if (second == first || !on_device(second)) continue;
          for (int write : writes[second]) {
            if (write > last_write[first] && write < i) clashes.emplace_back(first, second);
          }
        }
      }
      for (const Access& access : schedule.instructions[i].accesses) {
        if (access.write) last_write[access.buffer] = i;
      }
    }
    if (clashes.empty()) continue;
    const auto [first, second] = clashes[random() % clashes.size()];
    schedule.buffers[first].offset = schedule.buffers[second].offset;
    ASSERT_FALSE(Verify(schedule, size_t{1} << 40).ok())
        << "trial " << trial << " " << NameOf(schedule.buffers[first].kind) << " at "
        << NameOf(schedule.buffers[second].kind) << "\n"
        << ToString(schedule);
    ++caught;
  }
  EXPECT_GT(caught, kTrials / 2);
}

}  // namespace
}  // namespace millrace
