// How the events of a job look: a progress line on a terminal, plain lines elsewhere, the loss
// curve at the end.
#ifndef MILLRACE_CLIENT_CLI_WATCH_VIEW_H_
#define MILLRACE_CLIENT_CLI_WATCH_VIEW_H_

#include <cstdint>
#include <string>

#include "client/cli/loss_curve.h"
#include "client/cli/session.h"
#include "client/cli/status_line.h"
#include "millrace/v1/job_service.pb.h"

namespace millrace {

class WatchView {
 public:
  // `job` is the job as it is when watching begins.
  WatchView(const Session& session, const v1::Job& job);

  void OnEvent(const v1::JobEvent& event);
  // The connection broke.
  void OnReconnect();
  // The curve, the outcome with its reason, and what to do next.
  void Finish(const v1::Job& job);
  // Takes the progress line away.
  void Clear() { line_.Clear(); }

 private:
  void Print(const std::string& text);
  void OnStep(const v1::StepMetrics& step, absl::Time time);
  void OnStateChange(const v1::JobEvent::StateChange& change);
  void OnSample(const v1::Sample& sample);
  std::string Remaining(int64_t step) const;

  const Session& session_;
  const std::string id_;
  int64_t total_steps_;
  StatusLine line_;
  LossCurve curve_;
  v1::Job::State state_;
  // Of late steps, smoothed; for the time that is left.
  double step_seconds_ = 0;
  int64_t steps_seen_ = 0;
  int64_t printed_step_ = 0;
  absl::Time printed_time_ = absl::InfinitePast();
};

// `FAILED (NON_FINITE_LOSS): the loss was nan at step 12`.
std::string StateText(v1::Job::State state, v1::Reason reason, const std::string& message);

}  // namespace millrace

#endif  // MILLRACE_CLIENT_CLI_WATCH_VIEW_H_
