#include "server/jobs/state_machine.h"

#include "absl/strings/str_cat.h"
#include "server/base/errors.h"

namespace millrace {
namespace {

using v1::Job;

struct Transition {
  Job::State from;
  Job::State to;
  const char* when;
};

constexpr Transition kTransitions[] = {
    {Job::STATE_UNSPECIFIED, Job::QUEUED, "it was submitted"},
    {Job::QUEUED, Job::PREPARING, "its turn came: a worker is started"},
    {Job::QUEUED, Job::PAUSED, "a user paused it before its turn"},
    {Job::QUEUED, Job::CANCELLING, "a user cancelled it"},
    {Job::PREPARING, Job::RUNNING, "the worker has read model and data"},
    {Job::PREPARING, Job::QUEUED, "the worker crashed or was shut down, and is started again"},
    {Job::PREPARING, Job::PAUSING, "a user paused it"},
    {Job::PREPARING, Job::FAILED, "the worker could not prepare it"},
    {Job::PREPARING, Job::CANCELLING, "a user cancelled it"},
    {Job::RUNNING, Job::SUCCEEDED, "all steps are done"},
    {Job::RUNNING, Job::QUEUED, "the worker crashed or was shut down, and is started again"},
    {Job::RUNNING, Job::PAUSING, "a user paused it"},
    {Job::RUNNING, Job::FAILED, "the worker gave up"},
    {Job::RUNNING, Job::CANCELLING, "a user cancelled it"},
    {Job::PAUSING, Job::PAUSED, "its worker has ended"},
    {Job::PAUSING, Job::SUCCEEDED, "the last step was done before the request arrived"},
    {Job::PAUSING, Job::FAILED, "the worker gave up before it could stop"},
    {Job::PAUSING, Job::CANCELLING, "a user cancelled it"},
    {Job::PAUSED, Job::QUEUED, "a user resumed it"},
    {Job::PAUSED, Job::CANCELLING, "a user cancelled it"},
    {Job::CANCELLING, Job::CANCELLED, "no worker of it is left"},
    {Job::FAILED, Job::QUEUED, "a user resumed it from its last complete checkpoint"},
};

}  // namespace

bool IsLegalTransition(Job::State from, Job::State to) {
  for (const Transition& transition : kTransitions) {
    if (transition.from == from && transition.to == to) return true;
  }
  return false;
}

bool HasEnded(Job::State state) {
  return state == Job::SUCCEEDED || state == Job::FAILED || state == Job::CANCELLED;
}

bool HasWorker(Job::State state) {
  return state == Job::PREPARING || state == Job::RUNNING || state == Job::PAUSING ||
         state == Job::CANCELLING;
}

std::string StateName(Job::State state) { return Job::State_Name(state); }

absl::Status IllegalState(absl::string_view job_id, Job::State state, absl::string_view action) {
  const std::string name = absl::StrCat("jobs/", job_id);
  const std::string message =
      absl::StrCat(name, " is ", StateName(state), " and cannot be ", action);
  return WithPreconditionFailure(
      WithMetadata(MakeError(ErrorReason::kIllegalState, message), "state", StateName(state)),
      "STATE", name, message);
}

}  // namespace millrace
