#include "engine/device/arena.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace millrace {
namespace {

class ArenaTest : public ::testing::Test {
 protected:
  std::vector<std::byte> memory_{1000};
  Arena arena_{"device", memory_.data(), memory_.size()};
};

TEST_F(ArenaTest, GivesThePlaceThatWasAskedFor) {
  EXPECT_EQ(*arena_.Place(0, 1000, "all"), memory_.data());
  EXPECT_EQ(*arena_.Place(200, 800, "slot"), memory_.data() + 200);
  EXPECT_EQ(*arena_.Place(1000, 0, "nothing"), memory_.data() + 1000);
}

TEST_F(ArenaTest, RefusesWhatEndsBeyondIt) {
  const absl::Status status = arena_.Place(201, 800, "weight slot 1").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  for (const char* part : {"weight slot 1", "device", "800", "201", "1000", "1001"}) {
    EXPECT_NE(status.message().find(part), absl::string_view::npos) << part;
  }
  EXPECT_FALSE(arena_.Place(SIZE_MAX, 2, "an offset that wraps").ok());
  EXPECT_FALSE(arena_.Place(2, SIZE_MAX, "a size that wraps").ok());
  EXPECT_FALSE(arena_.Place(1001, 0, "nothing, but outside").ok());
}

TEST_F(ArenaTest, MeasuresItsPeak) {
  EXPECT_EQ(arena_.peak_bytes(), 0u);
  ASSERT_TRUE(arena_.Place(100, 300, "a").ok());
  ASSERT_TRUE(arena_.Place(0, 200, "b").ok());
  EXPECT_EQ(arena_.peak_bytes(), 400u);
  EXPECT_FALSE(arena_.Place(900, 200, "refused").ok());
  EXPECT_EQ(arena_.peak_bytes(), 400u);
}

}  // namespace
}  // namespace millrace
