#include "server/job_log.h"

#include <spdlog/spdlog.h>

#include "server/jobs/state_machine.h"

namespace millrace {

void JobLog::OnJobEvent(const v1::Job& job, const v1::JobEvent* event) {
  if (event == nullptr) {
    spdlog::info("{} found {}", job.name(), StateName(job.state()));
  } else if (event->has_state_change()) {
    const auto& change = event->state_change();
    const bool is_bad = change.to() == v1::Job::FAILED || change.reason() == v1::REASON_CRASH;
    spdlog::log(is_bad ? spdlog::level::warn : spdlog::level::info, "{} {} (attempt {}){}{}",
                job.name(), StateName(change.to()), event->attempt(),
                change.message().empty() ? "" : ": ", change.message());
  } else if (event->has_checkpoint()) {
    spdlog::info("{} saved a checkpoint at step {}", job.name(), event->checkpoint().step());
  }
  next_->OnJobEvent(job, event);
}

void JobLog::OnJobDeleted(const std::string& job_id) {
  spdlog::info("jobs/{} deleted", job_id);
  next_->OnJobDeleted(job_id);
}

}  // namespace millrace
