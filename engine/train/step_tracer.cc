#include "engine/train/step_tracer.h"

#include <iterator>

#include "absl/strings/str_cat.h"
#include "engine/base/file.h"
#include "engine/base/status_macros.h"

namespace millrace {

StepTracer::StepTracer(std::optional<std::pair<int64_t, int64_t>> steps, std::string folder)
    : steps_(steps), folder_(std::move(folder)) {}

bool StepTracer::Wants(int64_t step) const {
  return steps_.has_value() && step >= steps_->first && step <= steps_->second;
}

void StepTracer::Add(int64_t step, const StepTimes& times, std::vector<TraceEvent> events) {
  events_.push_back({.track = "step",
                     .name = absl::StrCat("step ", step),
                     .start = times.begin,
                     .end = times.end,
                     .step = step});
  events_.push_back({.track = "data",
                     .name = "load",
                     .start = times.begin,
                     .end = times.data_loaded,
                     .step = step});
  events_.insert(events_.end(), std::make_move_iterator(events.begin()),
                 std::make_move_iterator(events.end()));
  if (times.end > times.trained) {
    events_.push_back({.track = std::string(NameOf(StreamId::kHost)),
                       .name = "remaining_updates",
                       .start = times.trained,
                       .end = times.end,
                       .step = step});
  }
}

bool StepTracer::Complete(int64_t step) const {
  return Wants(step) && step == steps_->second && !events_.empty();
}

absl::StatusOr<TraceSaved> StepTracer::Write() {
  TraceSaved saved;
  saved.first_step = events_.front().step;
  saved.last_step = steps_->second;
  const std::string name = absl::StrCat("steps-", saved.first_step, "-", saved.last_step, ".json");
  const std::string json = TraceJson(events_);
  events_ = {};
  MILLRACE_RETURN_IF_ERROR(MakeFolderDurably(folder_));
  MILLRACE_RETURN_IF_ERROR(WriteFileAtomically(absl::StrCat(folder_, "/", name), json));
  saved.path = absl::StrCat("traces/", name);
  saved.size_bytes = static_cast<int64_t>(json.size());
  return saved;
}

}  // namespace millrace
