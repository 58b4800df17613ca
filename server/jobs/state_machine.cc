#include "server/jobs/state_machine.h"

#include "absl/strings/str_cat.h"
#include "server/base/errors.h"

namespace millrace {
namespace {

using v1::Job;

struct Transition {
  Job::State from;
  Job::State to;
};

constexpr Transition kTransitions[] = {
    // it was submitted
    {Job::STATE_UNSPECIFIED, Job::QUEUED},
    // its turn came: a worker is started
    {Job::QUEUED, Job::PREPARING},
    // a user paused it before its turn
    {Job::QUEUED, Job::PAUSED},
    // a user cancelled it
    {Job::QUEUED, Job::CANCELLING},
    // the worker has read model and data
    {Job::PREPARING, Job::RUNNING},
    // the worker crashed or was shut down, and is started again
    {Job::PREPARING, Job::QUEUED},
    // a user paused it
    {Job::PREPARING, Job::PAUSING},
    // the worker could not prepare it
    {Job::PREPARING, Job::FAILED},
    // a user cancelled it
    {Job::PREPARING, Job::CANCELLING},
    // all steps are done
    {Job::RUNNING, Job::SUCCEEDED},
    // the worker crashed or was shut down, and is started again
    {Job::RUNNING, Job::QUEUED},
    // a user paused it
    {Job::RUNNING, Job::PAUSING},
    // the worker gave up
    {Job::RUNNING, Job::FAILED},
    // a user cancelled it
    {Job::RUNNING, Job::CANCELLING},
    // its worker has ended
    {Job::PAUSING, Job::PAUSED},
    // the last step was done before the request arrived
    {Job::PAUSING, Job::SUCCEEDED},
    // the worker gave up before it could stop
    {Job::PAUSING, Job::FAILED},
    // a user cancelled it
    {Job::PAUSING, Job::CANCELLING},
    // a user resumed it
    {Job::PAUSED, Job::QUEUED},
    // a user cancelled it
    {Job::PAUSED, Job::CANCELLING},
    // no worker of it is left
    {Job::CANCELLING, Job::CANCELLED},
    // a user resumed it from its last complete checkpoint
    {Job::FAILED, Job::QUEUED},
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
