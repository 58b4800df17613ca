#include "engine/train/stop_control.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

TEST(StopControlTest, AsksForNothingAtFirst) {
  StopControl stop;
  EXPECT_FALSE(stop.stop_trigger().has_value());
  EXPECT_FALSE(stop.cancelled());
}

TEST(StopControlTest, TheFirstTriggerCounts) {
  StopControl stop;
  stop.RequestStop("PAUSE");
  stop.RequestStop("SHUTDOWN");
  EXPECT_EQ(stop.stop_trigger(), "PAUSE");
}

TEST(StopControlTest, ACancelIsSeenThroughTheFlag) {
  StopControl stop;
  const std::atomic<bool>& flag = stop.cancel_flag();
  EXPECT_FALSE(flag);
  stop.RequestCancel();
  EXPECT_TRUE(flag);
}

}  // namespace
}  // namespace millrace
