#include "client/cli/watch_view.h"

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "client/cli/human.h"
#include "client/cli/plan_view.h"
#include "client/lib/watch.h"

namespace millrace {
namespace {

// A plain line for a step is printed when this share of the job, or this time, went by.
constexpr int64_t kLinesPerJob = 50;
constexpr absl::Duration kLineInterval = absl::Seconds(10);
constexpr int kBarColumns = 22;

Style StyleOf(v1::Job::State state) {
  switch (state) {
    case v1::Job::SUCCEEDED:
      return Style::kGreen;
    case v1::Job::FAILED:
      return Style::kRed;
    case v1::Job::RUNNING:
    case v1::Job::PREPARING:
      return Style::kBold;
    default:
      return Style::kYellow;
  }
}

}  // namespace

std::string StateText(v1::Job::State state, v1::Reason reason, const std::string& message) {
  std::string text = v1::Job::State_Name(state);
  if (reason != v1::REASON_UNSPECIFIED) {
    std::string name = v1::Reason_Name(reason);
    if (absl::StartsWith(name, "REASON_")) name = name.substr(7);
    absl::StrAppend(&text, " (", name, ")");
  }
  if (!message.empty()) absl::StrAppend(&text, ": ", Sanitize(message, /*keep_lines=*/false));
  return text;
}

WatchView::WatchView(const Session& session, const v1::Job& job)
    : session_(session),
      id_(ResourceId(job.name())),
      total_steps_(std::max(job.progress().total_steps(), job.spec().train().steps())),
      line_(session.out(), session.terminal()),
      state_(v1::Job::QUEUED) {}

void WatchView::Print(const std::string& text) {
  line_.Clear();
  session_.out() << text << std::endl;
}

void WatchView::OnEvent(const v1::JobEvent& event) {
  switch (event.event_case()) {
    case v1::JobEvent::kStateChange:
      OnStateChange(event.state_change());
      break;
    case v1::JobEvent::kStep:
      OnStep(event.step(), FromProto(event.time()));
      break;
    case v1::JobEvent::kEvaluation:
      Print(absl::StrFormat("evaluation at step %d  loss %s  (%s tokens in %s)",
                            event.evaluation().step(), HumanLoss(event.evaluation().loss()),
                            HumanCount(static_cast<double>(event.evaluation().tokens())),
                            HumanDuration(absl::Seconds(event.evaluation().seconds()))));
      break;
    case v1::JobEvent::kCheckpoint:
      Print(absl::StrFormat("checkpoint at step %d  %s in %s", event.checkpoint().step(),
                            HumanBytes(event.checkpoint().size_bytes()),
                            HumanDuration(absl::Seconds(event.checkpoint().seconds()))));
      break;
    case v1::JobEvent::kSample:
      OnSample(event.sample());
      break;
    case v1::JobEvent::kTrace:
      Print(absl::StrFormat("trace of steps %d to %d  %s", event.trace().first_step(),
                            event.trace().last_step(), HumanBytes(event.trace().size_bytes())));
      break;
    case v1::JobEvent::kMemory:
    case v1::JobEvent::EVENT_NOT_SET:
      break;
  }
}

std::string WatchView::Remaining(int64_t step) const {
  if (step_seconds_ <= 0 || step >= total_steps_) return "";
  return HumanDuration(absl::Seconds(step_seconds_ * static_cast<double>(total_steps_ - step)));
}

void WatchView::OnStep(const v1::StepMetrics& step, absl::Time time) {
  curve_.Add(step.step(), step.loss());
  step_seconds_ =
      step_seconds_ <= 0 ? step.step_seconds() : 0.9 * step_seconds_ + 0.1 * step.step_seconds();
  double ratio =
      total_steps_ > 0 ? static_cast<double>(step.step()) / static_cast<double>(total_steps_) : 0;
  std::string remaining = Remaining(step.step());
  std::string rate = absl::StrCat(HumanCount(step.tokens_per_second()), " tok/s");
  std::string loss = absl::StrCat("loss ", HumanLoss(step.loss()));
  if (session_.terminal().interactive) {
    line_.Show({absl::StrFormat("step %d/%d", step.step(), total_steps_), HumanPercent(ratio), loss,
                remaining.empty() ? "" : absl::StrCat("eta ", remaining), rate,
                ProgressBar(ratio, kBarColumns, session_.terminal().unicode),
                absl::StrCat(HumanPercent(step.speed_of_light_ratio()), " of peak")});
    return;
  }
  bool due = printed_step_ == 0 || step.step() >= total_steps_ || step.step() < printed_step_ ||
             (step.step() - printed_step_) * kLinesPerJob >= total_steps_ ||
             time - printed_time_ >= kLineInterval;
  if (!due) return;
  printed_step_ = step.step();
  printed_time_ = time;
  const std::string stalls = StallsText(step.stalls());
  Print(absl::StrFormat("step %d/%d  %s  %s  lr %.2e  %s%s%s", step.step(), total_steps_,
                        HumanPercent(ratio), loss, step.learning_rate(), rate,
                        remaining.empty() ? "" : absl::StrCat("  eta ", remaining),
                        stalls.empty() ? "" : absl::StrCat("  waits ", stalls)));
}

void WatchView::OnStateChange(const v1::JobEvent::StateChange& change) {
  state_ = change.to();
  // The last one is told by Finish.
  if (HasEnded(state_)) return;
  std::string text = StateText(change.to(), change.reason(), change.message());
  Print(Styled(session_.terminal(), StyleOf(state_), text));
  if (state_ == v1::Job::PAUSED) {
    Print(absl::StrCat("waiting; go on with: millrace resume ", id_));
  }
}

void WatchView::OnSample(const v1::Sample& sample) {
  std::string text = absl::StrCat(
      Styled(session_.terminal(), Style::kBold, Sanitize(sample.prompt(), /*keep_lines=*/true)),
      Sanitize(sample.text(), /*keep_lines=*/true));
  // An indent shows where the sample ends.
  const char* bar = session_.terminal().unicode ? "  │ " : "  | ";
  Print(absl::StrCat("sample at step ", sample.step(), "\n", bar,
                     absl::StrReplaceAll(text, {{"\n", absl::StrCat("\n", bar)}})));
}

void WatchView::OnReconnect() {
  line_.Clear();
  session_.Note("the connection to the daemon broke; trying again (the job is not harmed)");
}

void WatchView::Finish(const v1::Job& job) {
  line_.Clear();
  std::ostream& out = session_.out();
  if (curve_.steps() > 1) out << "\n" << curve_.Plot(session_.terminal()) << "\n";
  std::string text = absl::StrCat(id_, " ",
                                  Styled(session_.terminal(), StyleOf(job.state()),
                                         StateText(job.state(), job.reason(), job.message())));
  if (job.has_start_time() && job.has_end_time()) {
    absl::StrAppend(&text, " after ",
                    HumanDuration(FromProto(job.end_time()) - FromProto(job.start_time())));
  }
  if (curve_.steps() > 0) {
    absl::StrAppend(&text, ", ", curve_.steps(), " steps, loss ", HumanLoss(curve_.first()), " -> ",
                    HumanLoss(curve_.last()));
  }
  if (job.progress().has_last_evaluation()) {
    absl::StrAppend(&text, ", evaluation ", HumanLoss(job.progress().last_evaluation().loss()));
  }
  out << text << std::endl;
  if (job.state() == v1::Job::FAILED) {
    out << "what happened: millrace logs " << id_ << std::endl;
  }
  if (job.progress().last_checkpoint_step() > 0) {
    out << "checkpoint of step " << job.progress().last_checkpoint_step()
        << ": millrace checkpoints download " << id_ << std::endl;
  }
}

}  // namespace millrace
