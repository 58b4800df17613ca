#include "server/observe/job_metrics.h"

#include <algorithm>
#include <utility>

#include "absl/strings/strip.h"
#include "server/jobs/state_machine.h"

namespace millrace {
namespace {

using v1::Job;

double ToUnixSeconds(const google::protobuf::Timestamp& time) {
  return static_cast<double>(time.seconds()) + 1e-9 * time.nanos();
}

std::string IdOf(const Job& job) { return std::string(absl::StripPrefix(job.name(), "jobs/")); }

// `CRASH` for REASON_CRASH.
std::string ReasonLabel(v1::Reason reason) {
  return std::string(absl::StripPrefix(v1::Reason_Name(reason), "REASON_"));
}

}  // namespace

JobMetrics::JobMetrics(Metrics* metrics) : metrics_(metrics) {
  metrics_->AddCollector([this] {
    double oldest = 0;
    {
      absl::MutexLock lock(&mutex_);
      for (const auto& [id, since] : queued_since_) {
        oldest = oldest == 0 ? since : std::min(oldest, since);
      }
    }
    metrics_->Set(metric::kQueueOldest, {}, oldest);
  });
}

void JobMetrics::OnJobEvent(const Job& job, const v1::JobEvent* event) {
  const std::string id = IdOf(job);
  if (event == nullptr) {
    metrics_->Set(metric::kPlannedSteps, {id}, static_cast<double>(job.progress().total_steps()));
    if (job.state() == Job::QUEUED) OnQueued(id, ToUnixSeconds(job.update_time()));
    return;
  }
  const double time = ToUnixSeconds(event->time());
  switch (event->event_case()) {
    case v1::JobEvent::kStateChange:
      OnStateChange(id, job, *event);
      break;
    case v1::JobEvent::kStep:
      OnStep(id, job, time, event->step());
      break;
    case v1::JobEvent::kEvaluation:
      metrics_->Set(metric::kEvaluationLoss, {id}, event->evaluation().loss());
      break;
    case v1::JobEvent::kCheckpoint:
      metrics_->Observe(metric::kCheckpointSave, {}, event->checkpoint().seconds());
      metrics_->Add(metric::kCheckpointSaves, {event->checkpoint().trigger()}, 1);
      metrics_->Set(metric::kLastCheckpointTime, {id}, time);
      break;
    case v1::JobEvent::kMemory:
      for (const auto& pool : event->memory().pools()) {
        metrics_->Set(metric::kMemoryUsed, {id, pool.purpose()}, static_cast<double>(pool.bytes()));
      }
      break;
    case v1::JobEvent::kSample:
    case v1::JobEvent::kTrace:
    case v1::JobEvent::EVENT_NOT_SET:
      break;
  }
  // Also after what was committed together with the end.
  if (HasEnded(job.state())) metrics_->RemoveSeriesOfJob(id);
}

void JobMetrics::OnStateChange(const std::string& id, const Job& job, const v1::JobEvent& event) {
  const auto& change = event.state_change();
  metrics_->Add(metric::kJobTransitions, {StateName(change.to()), ReasonLabel(change.reason())}, 1);
  const double time = ToUnixSeconds(event.time());
  if (change.to() == Job::QUEUED) {
    OnQueued(id, time);
    metrics_->Set(metric::kPlannedSteps, {id}, static_cast<double>(job.progress().total_steps()));
    if (HasWorker(change.from())) {
      metrics_->Add(metric::kJobRestarts, {ReasonLabel(change.reason())}, 1);
    }
  }
  if (change.from() != Job::QUEUED) return;
  const double since = OnLeftQueue(id);
  if (since > 0 && change.to() == Job::PREPARING) {
    metrics_->Observe(metric::kQueueWait, {}, std::max(0.0, time - since));
  }
}

void JobMetrics::OnStep(const std::string& id, const Job& job, double time,
                        const v1::StepMetrics& step) {
  metrics_->Add(metric::kTrainSteps, {id}, 1);
  metrics_->Add(metric::kTrainTokens, {id}, static_cast<double>(step.tokens()));
  metrics_->Set(metric::kLoss, {id}, step.loss());
  metrics_->Set(metric::kLearningRate, {id}, step.learning_rate());
  metrics_->Set(metric::kGradientNorm, {id}, step.gradient_norm());
  metrics_->Set(metric::kSpeedOfLight, {id}, step.speed_of_light_ratio());
  metrics_->Set(metric::kLastStepTime, {id}, time);
  metrics_->Observe(metric::kStepSeconds, {}, step.step_seconds());
  if (step.has_stalls()) {
    const v1::StepStalls& stalls = step.stalls();
    const std::pair<const char*, double> causes[] = {{"weights", stalls.weights_seconds()},
                                                     {"gradients", stalls.gradients_seconds()},
                                                     {"optimizer", stalls.optimizer_seconds()},
                                                     {"activations", stalls.activations_seconds()},
                                                     {"data", stalls.data_seconds()}};
    for (const auto& [cause, seconds] : causes) {
      metrics_->Add(metric::kStreamStall, {id, cause}, std::max(0.0, seconds));
    }
  }
  if (job.plan().step_seconds() > 0) {
    metrics_->Set(metric::kPredictedStepSeconds, {id}, job.plan().step_seconds());
  }
  const int64_t planned = job.progress().total_steps();
  if (planned > 0) {
    metrics_->Set(metric::kProgressRatio, {id},
                  static_cast<double>(step.step()) / static_cast<double>(planned));
  }
  if (job.progress().has_remaining()) {
    const auto& remaining = job.progress().remaining();
    metrics_->Set(metric::kEstimatedEnd, {id},
                  time + static_cast<double>(remaining.seconds()) + 1e-9 * remaining.nanos());
  }
}

void JobMetrics::OnQueued(const std::string& id, double time) {
  absl::MutexLock lock(&mutex_);
  queued_since_[id] = time;
}

double JobMetrics::OnLeftQueue(const std::string& id) {
  absl::MutexLock lock(&mutex_);
  const auto found = queued_since_.find(id);
  if (found == queued_since_.end()) return 0;
  const double since = found->second;
  queued_since_.erase(found);
  return since;
}

void JobMetrics::OnJobDeleted(const std::string& job_id) { metrics_->RemoveSeriesOfJob(job_id); }

}  // namespace millrace
