#include "engine/optim/learning_rate.h"

#include <gtest/gtest.h>

#include <cmath>

namespace millrace {
namespace {

LearningRateSchedule Make(ScheduleKind kind) {
  return {.kind = kind,
          .peak = 1e-3,
          .steps = 100,
          .warmup_steps = 10,
          .final_ratio = 0.1,
          .decay_steps = 20};
}

TEST(LearningRateTest, RisesLinearlyThroughWarmupInEverySchedule) {
  for (ScheduleKind kind : {ScheduleKind::kConstant, ScheduleKind::kLinear, ScheduleKind::kCosine,
                            ScheduleKind::kWsd}) {
    EXPECT_DOUBLE_EQ(LearningRateAt(Make(kind), 1), 1e-4);
    EXPECT_DOUBLE_EQ(LearningRateAt(Make(kind), 5), 5e-4);
    EXPECT_DOUBLE_EQ(LearningRateAt(Make(kind), 10), 1e-3);
  }
}

TEST(LearningRateTest, EndsAtTheFinalRatioAndStaysThere) {
  for (ScheduleKind kind : {ScheduleKind::kLinear, ScheduleKind::kCosine, ScheduleKind::kWsd}) {
    EXPECT_NEAR(LearningRateAt(Make(kind), 100), 1e-4, 1e-18);
    EXPECT_NEAR(LearningRateAt(Make(kind), 1000), 1e-4, 1e-18);
  }
  EXPECT_DOUBLE_EQ(LearningRateAt(Make(ScheduleKind::kConstant), 100), 1e-3);
}

TEST(LearningRateTest, IsHalfWayInTheMiddleOfLinearAndCosine) {
  EXPECT_NEAR(LearningRateAt(Make(ScheduleKind::kLinear), 55), 0.55e-3, 1e-15);
  EXPECT_NEAR(LearningRateAt(Make(ScheduleKind::kCosine), 55), 0.55e-3, 1e-15);
}

TEST(LearningRateTest, CosineIsAboveLinearEarlyAndBelowLate) {
  EXPECT_GT(LearningRateAt(Make(ScheduleKind::kCosine), 30),
            LearningRateAt(Make(ScheduleKind::kLinear), 30));
  EXPECT_LT(LearningRateAt(Make(ScheduleKind::kCosine), 80),
            LearningRateAt(Make(ScheduleKind::kLinear), 80));
}

TEST(LearningRateTest, WsdIsFlatUntilItsDecayBegins) {
  EXPECT_DOUBLE_EQ(LearningRateAt(Make(ScheduleKind::kWsd), 11), 1e-3);
  EXPECT_DOUBLE_EQ(LearningRateAt(Make(ScheduleKind::kWsd), 80), 1e-3);
  EXPECT_NEAR(LearningRateAt(Make(ScheduleKind::kWsd), 90), 0.55e-3, 1e-15);
}

TEST(LearningRateTest, WithoutWarmupTheFirstStepIsNearThePeak) {
  LearningRateSchedule schedule = Make(ScheduleKind::kCosine);
  schedule.warmup_steps = 0;
  EXPECT_GT(LearningRateAt(schedule, 1), 0.99e-3);
}

TEST(LearningRateTest, WarmupAsLongAsTheRunIsAllRise) {
  LearningRateSchedule schedule = Make(ScheduleKind::kCosine);
  schedule.warmup_steps = 100;
  EXPECT_DOUBLE_EQ(LearningRateAt(schedule, 100), 1e-3);
}

}  // namespace
}  // namespace millrace
