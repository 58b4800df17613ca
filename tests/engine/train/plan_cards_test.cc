#include "engine/train/plan_cards.h"

#include <string>

#include "engine/base/file.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

TEST(PlanCardsTest, TheCommittedDocumentIsWhatTheCommandPrints) {
  const absl::StatusOr<std::string> committed = ReadFile("engine/schedule/CARDS.md");
  ASSERT_TRUE(committed.ok()) << committed.status();
  const absl::StatusOr<std::string> made = CardsDocument();
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(*committed, *made)
      << "make it again: bazel run //engine/train:plan_cards > engine/schedule/CARDS.md";
}

}  // namespace
}  // namespace millrace
