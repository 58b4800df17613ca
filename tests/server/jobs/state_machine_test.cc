#include "server/jobs/state_machine.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "server/base/errors.h"

namespace millrace {
namespace {

using v1::Job;

// Written out a second time, from the design, state by state.
const std::map<Job::State, std::set<Job::State>> kMayFollow = {
    {Job::STATE_UNSPECIFIED, {Job::QUEUED}},
    {Job::QUEUED, {Job::PREPARING, Job::PAUSED, Job::CANCELLING}},
    {Job::PREPARING, {Job::RUNNING, Job::QUEUED, Job::PAUSING, Job::FAILED, Job::CANCELLING}},
    {Job::RUNNING, {Job::SUCCEEDED, Job::FAILED, Job::QUEUED, Job::PAUSING, Job::CANCELLING}},
    {Job::PAUSING, {Job::PAUSED, Job::SUCCEEDED, Job::FAILED, Job::CANCELLING}},
    {Job::PAUSED, {Job::QUEUED, Job::CANCELLING}},
    {Job::CANCELLING, {Job::CANCELLED}},
    {Job::SUCCEEDED, {}},
    {Job::FAILED, {Job::QUEUED}},
    {Job::CANCELLED, {}},
};

TEST(StateMachineTest, AllowsExactlyTheTransitionsOfTheDesign) {
  for (int from = 0; from < Job::State_ARRAYSIZE; ++from) {
    for (int to = 0; to < Job::State_ARRAYSIZE; ++to) {
      const auto from_state = static_cast<Job::State>(from);
      const auto to_state = static_cast<Job::State>(to);
      EXPECT_EQ(IsLegalTransition(from_state, to_state),
                kMayFollow.at(from_state).count(to_state) > 0)
          << StateName(from_state) << " -> " << StateName(to_state);
    }
  }
}

TEST(StateMachineTest, EveryStateButTheEndedOnesCanBeCancelled) {
  for (int state = 1; state < Job::State_ARRAYSIZE; ++state) {
    const auto from = static_cast<Job::State>(state);
    if (from == Job::CANCELLING) continue;
    EXPECT_EQ(IsLegalTransition(from, Job::CANCELLING), !HasEnded(from)) << StateName(from);
  }
}

TEST(StateMachineTest, IllegalStateNamesJobAndState) {
  const absl::Status status = IllegalState("plays", Job::SUCCEEDED, "paused");
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), "jobs/plays is SUCCEEDED and cannot be paused");
  EXPECT_EQ(ReasonOf(status), "ILLEGAL_STATE");
}

}  // namespace
}  // namespace millrace
