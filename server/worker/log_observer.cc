#include "server/worker/log_observer.h"

#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"

namespace millrace {
namespace {

constexpr absl::Duration kStepLineEvery = absl::Seconds(1);

std::string MiB(int64_t bytes) {
  return absl::StrFormat("%.1f MiB", static_cast<double>(bytes) / (1 << 20));
}

}  // namespace

void LogObserver::OnPrepared(const TrainSpec& resolved, const JobPlan& plan, int64_t start_step) {
  total_steps_ = resolved.steps;
  log_->info("{}", absl::StrFormat(
                       "prepared: %d steps of %d tokens in micro-batches of %d, %d threads, "
                       "recipe %s, compute %s; %s",
                       resolved.steps, resolved.tokens_per_step,
                       resolved.tokens_per_micro_batch.value_or(0), resolved.threads.value_or(0),
                       NameOf(resolved.recipe), NameOf(resolved.compute.value_or(DType::kF32)),
                       start_step > 0 ? absl::StrCat("continues after step ", start_step)
                                      : "starts at the beginning"));
  log_->info("{}", absl::StrFormat(
                       "planned for %s: %.0f tokens/s, %.3f s a step; %s", plan.device,
                       plan.tokens_per_second, plan.step_seconds,
                       absl::StrJoin(plan.choices, ", ", [](std::string* out, const auto& choice) {
                         absl::StrAppend(out, choice.name, " ", choice.value);
                       })));
}

void LogObserver::OnStep(const StepMetrics& metrics) {
  const absl::Time now = absl::Now();
  if (now < last_step_line_ + kStepLineEvery && metrics.step != total_steps_) return;
  last_step_line_ = now;
  log_->info("{}", absl::StrFormat("step %d/%d: loss %.4f, gradient norm %.3g, learning rate %.3g, "
                                   "%.0f tokens/s, %.1f%% of the speed of light",
                                   metrics.step, total_steps_, metrics.loss, metrics.gradient_norm,
                                   metrics.learning_rate, metrics.tokens_per_second,
                                   100 * metrics.speed_of_light_ratio));
}

void LogObserver::OnEvaluation(const EvaluationMetrics& metrics) {
  log_->info("{}", absl::StrFormat("evaluation after step %d: loss %.4f over %d tokens in %.2f s",
                                   metrics.step, metrics.loss, metrics.tokens, metrics.seconds));
}

void LogObserver::OnCheckpoint(const CheckpointSaved& checkpoint) {
  log_->info("{}",
             absl::StrFormat("checkpoint of step %d saved: %s in %.2f s (%s)", checkpoint.step,
                             MiB(checkpoint.size_bytes), checkpoint.seconds, checkpoint.trigger));
}

void LogObserver::OnSample(const Sample& sample) {
  // On one line, whatever is in it.
  log_->info("{}", absl::StrFormat("sample after step %d: %s|%s", sample.step,
                                   absl::Utf8SafeCEscape(sample.prompt),
                                   absl::Utf8SafeCEscape(sample.text)));
}

void LogObserver::OnWarning(absl::string_view message) { log_->warn("{}", std::string(message)); }

void LogObserver::OnTrace(const TraceSaved& trace) {
  log_->info("{}", absl::StrFormat("trace of steps %d to %d written: %s, %s", trace.first_step,
                                   trace.last_step, trace.path, MiB(trace.size_bytes)));
}

void LogObserver::OnMemory(const MemoryUsage& memory) {
  log_->info("{}", absl::StrCat("memory: ",
                                absl::StrJoin(memory.pools, ", ",
                                              [](std::string* out, const MemoryPool& pool) {
                                                absl::StrAppend(out, pool.purpose, " ",
                                                                MiB(pool.bytes));
                                              }),
                                "; peak of the device ", MiB(memory.peak_device_bytes),
                                ", of the process ", MiB(memory.peak_resident_bytes)));
}

}  // namespace millrace
