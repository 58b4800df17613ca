#include "engine/train/trainer.h"

#include <chrono>
#include <cmath>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/random.h"
#include "engine/base/status_macros.h"
#include "engine/data/unicode_text.h"
#include "engine/train/checkpoint_folder.h"
#include "engine/train/run_setup.h"
#include "engine/train/sampler.h"
#include "engine/train/speed_of_light.h"
#include "engine/train/step_tracer.h"
#include "engine/train/system_memory.h"

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;

// Keeps the random numbers of samples apart from all others of the same seed.
constexpr uint64_t kSampleStreams = uint64_t{1} << 63;

// On the clock, as traces have it.
double Seconds(Clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

TokenBatch ViewOf(const MicroBatch& batch) {
  return {batch.inputs, batch.targets, batch.positions, batch.boundaries};
}

class Trainer {
 public:
  Trainer(RunSetup& run, const std::string& job_folder, TrainObserver& observer, StopControl& stop)
      : run_(run),
        observer_(observer),
        stop_(stop),
        schedule_(ScheduleOf(run.spec)),
        tracer_(run.spec.trace_steps, job_folder + "/traces") {}

  absl::StatusOr<TrainResult> Run();

 private:
  // What is to be done once the step that was just made is.
  struct Due {
    bool evaluate, sample, checkpoint;
    bool any() const { return evaluate || sample || checkpoint; }
  };

  Due DueAfter(int64_t step) const;
  absl::Status Step();
  void WriteTrace();
  // These leave out the rest when a stop is asked for. A run's last are made all the same: they are
  // part of its result.
  absl::Status Evaluate();
  absl::Status DrawSamples();
  bool stopping() const {
    return run_.at.step < run_.spec.steps && stop_.stop_trigger().has_value();
  }
  // The failure of a run whose numbers have become infinite or NaN.
  absl::Status NonFinite(int64_t step, absl::string_view what) const;
  absl::Status Save(const std::string& trigger);
  void ReportMemory();

  RunSetup& run_;
  TrainObserver& observer_;
  StopControl& stop_;
  const LearningRateSchedule schedule_;
  StepTracer tracer_;
  // Step of the newest complete checkpoint.
  int64_t saved_step_ = 0;
};

Trainer::Due Trainer::DueAfter(int64_t step) const {
  const TrainSpec& spec = run_.spec;
  const bool last = step == spec.steps;
  const auto every = [&](int64_t interval) {
    return interval > 0 && (last || step % interval == 0);
  };
  Due due;
  due.checkpoint = last || every(*spec.checkpoint_every_steps);
  due.evaluate = run_.loader->eval_sequences() > 0 &&
                 (spec.evaluate_every_steps ? every(*spec.evaluate_every_steps) : due.checkpoint);
  due.sample = every(spec.sample_every_steps);
  return due;
}

absl::Status Trainer::Step() {
  const TrainSpec& spec = run_.spec;
  const Clock::time_point start = Clock::now();
  const int64_t step = run_.at.step + 1;
  const std::vector<MicroBatch> batches =
      run_.loader->NextStep(spec.tokens_per_step, *spec.tokens_per_micro_batch);
  std::vector<TokenBatch> views;
  for (const MicroBatch& batch : batches) views.push_back(ViewOf(batch));
  StepTimes times{.begin = Seconds(start), .data_loaded = Seconds(Clock::now())};

  OptimizerStep optimizer;
  optimizer.step = step;
  optimizer.learning_rate = LearningRateAt(schedule_, step);
  optimizer.params = OptimizerParamsOf(spec);
  optimizer.seed = static_cast<uint64_t>(spec.seed);
  optimizer.clip_norm = spec.clip_norm;
  MILLRACE_ASSIGN_OR_RETURN(const StepResult result, run_.runner->TrainStep(views, optimizer));
  if (!result.finite()) {
    // Without clipping, units were updated before the first that is not finite was seen.
    return NonFinite(step, absl::StrCat("the loss is ", result.loss(), " and the gradient norm ",
                                        result.gradient_norm,
                                        spec.clip_norm > 0 ? "; the step was not applied" : ""));
  }
  times.trained = times.end = Seconds(Clock::now());
  // What the step left to be done with the next one counts as its time all the same.
  if (DueAfter(step).any()) {
    MILLRACE_RETURN_IF_ERROR(run_.runner->Flush());
    times.end = Seconds(Clock::now());
  }
  if (tracer_.Wants(step)) tracer_.Add(step, times, run_.runner->Trace(step));

  run_.at.step = step;
  run_.at.total_tokens += spec.tokens_per_step;
  run_.at.cursor = run_.loader->cursor();
  run_.at.evaluation_loss.reset();

  StepMetrics metrics;
  metrics.step = step;
  metrics.loss = result.loss();
  metrics.gradient_norm = result.gradient_norm;
  metrics.learning_rate = optimizer.learning_rate;
  metrics.tokens = spec.tokens_per_step;
  metrics.step_seconds = times.end - times.begin;
  metrics.tokens_per_second = static_cast<double>(metrics.tokens) / metrics.step_seconds;
  if (run_.peak_flops > 0) {
    metrics.speed_of_light_ratio =
        NeededFlops(run_.model, batches) / run_.peak_flops / metrics.step_seconds;
  }
  metrics.total_tokens = run_.at.total_tokens;
  metrics.stalls = result.stalls;
  metrics.stalls.data += times.data_loaded - times.begin;
  metrics.stalls.optimizer += times.end - times.trained;
  observer_.OnStep(metrics);
  if (tracer_.Complete(step)) WriteTrace();
  return absl::OkStatus();
}

// A run is not worth less without it.
void Trainer::WriteTrace() {
  const absl::StatusOr<TraceSaved> saved = tracer_.Write();
  if (saved.ok()) {
    observer_.OnTrace(*saved);
  } else {
    observer_.OnWarning(absl::StrCat("no trace was written: ", saved.status().message()));
  }
}

absl::Status Trainer::NonFinite(int64_t step, absl::string_view what) const {
  const TrainSpec& spec = run_.spec;
  const std::string clip = spec.clip_norm > 0
                               ? absl::StrCat("lower train.clip_norm (", spec.clip_norm, ")")
                               : "set train.clip_norm (now 0, which is off)";
  return WithReason(absl::AbortedError(absl::StrCat(
                        "step ", step, ": ", what, ". Lower train.optimizer.learning_rate (",
                        spec.learning_rate, "), raise train.schedule.warmup_steps (",
                        spec.warmup_steps, ") or ", clip, ", and start a new job")),
                    FailureReason::kNonFiniteLoss);
}

absl::Status Trainer::Evaluate() {
  const Clock::time_point start = Clock::now();
  EvaluationMetrics metrics;
  metrics.step = run_.at.step;
  double loss_sum = 0;
  for (const MicroBatch& batch : run_.loader->EvaluationBatches(*run_.spec.tokens_per_micro_batch,
                                                                run_.spec.evaluate_max_sequences)) {
    if (stopping()) return absl::OkStatus();
    MILLRACE_ASSIGN_OR_RETURN(const double sum, run_.runner->EvaluateLossSum(ViewOf(batch)));
    loss_sum += sum;
    metrics.tokens += batch.target_count;
  }
  if (metrics.tokens == 0) return absl::OkStatus();
  metrics.loss = loss_sum / static_cast<double>(metrics.tokens);
  metrics.seconds = SecondsSince(start);
  // Weights that give no loss are not worth a checkpoint.
  if (!std::isfinite(metrics.loss)) {
    return NonFinite(metrics.step, absl::StrCat("the evaluation loss is ", metrics.loss));
  }
  run_.at.evaluation_loss = metrics.loss;
  observer_.OnEvaluation(metrics);
  return absl::OkStatus();
}

absl::Status Trainer::DrawSamples() {
  const TrainSpec& spec = run_.spec;
  for (size_t i = 0; i < spec.prompts.size(); ++i) {
    const std::vector<int32_t> prompt = EncodePrompt(*run_.tokenizer, spec.prompts[i]);
    const CounterRandom random(
        static_cast<uint64_t>(spec.seed),
        kSampleStreams | (static_cast<uint64_t>(i) << 40) | static_cast<uint64_t>(run_.at.step));
    const absl::StatusOr<std::vector<int32_t>> tokens =
        Generate(prompt,
                 {.max_tokens = spec.sample_max_tokens,
                  .context = spec.sequence_length,
                  .vocab_size = run_.model.vocab_size,
                  .end_of_document = run_.tokenizer->end_of_document()},
                 {.temperature = spec.temperature, .top_k = spec.top_k}, random,
                 [this](absl::Span<const int32_t> context, absl::Span<float> logits) {
                   if (stopping()) return absl::CancelledError("stopped");
                   return run_.runner->Logits(context, logits);
                 });
    if (absl::IsCancelled(tokens.status()) && stopping() && !stop_.cancelled()) break;
    MILLRACE_RETURN_IF_ERROR(tokens.status());
    std::string storage;
    observer_.OnSample({run_.at.step, spec.prompts[i],
                        std::string(WellFormed(run_.tokenizer->Decode(*tokens), &storage))});
  }
  return absl::OkStatus();
}

absl::Status Trainer::Save(const std::string& trigger) {
  const Clock::time_point start = Clock::now();
  MILLRACE_RETURN_IF_ERROR(run_.runner->Flush());
  for (int unit = 0; unit < run_.state->num_units(); ++unit) {
    if (run_.state->WeightsFinite(unit, *run_.pool)) continue;
    return NonFinite(run_.at.step, "weights are infinite or NaN; no checkpoint was made of them");
  }
  const absl::StatusOr<CheckpointInfo> info =
      WriteCheckpoint(run_.checkpoints, run_.model, *run_.state, run_.at, &stop_.cancel_flag(),
                      run_.tokenizer_folder, run_.tokenizer.get());
  if (!info.ok()) return OnDisk(info.status());
  saved_step_ = run_.at.step;
  observer_.OnCheckpoint({info->step, info->size_bytes, SecondsSince(start), trigger});
  return OnDisk(ApplyRetention(
      run_.checkpoints, {.keep_last = run_.spec.keep_last, .keep_best = run_.spec.keep_best}));
}

void Trainer::ReportMemory() {
  MemoryUsage usage;
  const auto add = [&usage](const std::string& purpose, int64_t bytes) {
    for (MemoryPool& pool : usage.pools) {
      if (pool.purpose == purpose) {
        pool.bytes += bytes;
        return;
      }
    }
    usage.pools.push_back({purpose, bytes});
  };
  for (const MemoryPool& pool : run_.state->memory()) add(pool.purpose, pool.bytes);
  for (const MemoryItem& item : run_.runner->plan().host_memory) {
    add(item.purpose, static_cast<int64_t>(item.bytes));
  }
  for (const MemoryItem& item : run_.runner->plan().memory) {
    add(item.purpose, static_cast<int64_t>(item.bytes));
  }
  // Ids, targets and positions of a step.
  add("data", 3 * run_.spec.tokens_per_step * static_cast<int64_t>(sizeof(int32_t)));
  usage.peak_device_bytes = static_cast<int64_t>(run_.runner->peak_device_bytes());
  usage.peak_resident_bytes = PeakResidentBytes();
  observer_.OnMemory(usage);
}

absl::StatusOr<TrainResult> Trainer::Run() {
  const int64_t start_step = run_.at.step;
  saved_step_ = start_step;
  observer_.OnPrepared(run_.spec, run_.plan, start_step);
  ReportMemory();
  while (run_.at.step < run_.spec.steps) {
    if (stop_.cancelled()) return absl::CancelledError("cancelled");
    if (const std::optional<std::string> trigger = stop_.stop_trigger()) {
      if (run_.at.step > saved_step_) MILLRACE_RETURN_IF_ERROR(Save(*trigger));
      return TrainResult{TrainResult::Outcome::kStopped, run_.at.step};
    }
    MILLRACE_RETURN_IF_ERROR(Step());
    if (run_.at.step == start_step + 1) ReportMemory();
    const Due due = DueAfter(run_.at.step);
    if (due.evaluate) MILLRACE_RETURN_IF_ERROR(Evaluate());
    if (due.sample) MILLRACE_RETURN_IF_ERROR(DrawSamples());
    if (due.checkpoint) {
      MILLRACE_RETURN_IF_ERROR(Save(run_.at.step == run_.spec.steps ? "FINAL" : "SCHEDULED"));
    }
  }
  ReportMemory();
  return TrainResult{TrainResult::Outcome::kSucceeded, run_.at.step};
}

// Step of the newest checkpoint; 0 when there is none.
int64_t NewestStep(const std::string& job_folder) {
  const std::vector<CheckpointInfo> checkpoints = ListCheckpoints(job_folder + "/checkpoints");
  return checkpoints.empty() ? 0 : checkpoints.front().step;
}

}  // namespace

absl::StatusOr<TrainResult> Train(const TrainSpec& spec, const std::string& job_folder,
                                  TrainObserver& observer, StopControl& stop) {
  absl::StatusOr<std::unique_ptr<RunSetup>> run = PrepareRun(spec, job_folder, observer, stop);
  const absl::StatusOr<TrainResult> result =
      run.ok() ? Trainer(**run, job_folder, observer, stop).Run() : run.status();
  if (result.status().code() != absl::StatusCode::kCancelled) return result;
  if (stop.cancelled()) {
    return TrainResult{TrainResult::Outcome::kCancelled, run.ok() ? (*run)->at.step : 0};
  }
  if (!stop.stop_trigger()) return result;
  return TrainResult{TrainResult::Outcome::kStopped, NewestStep(job_folder)};
}

}  // namespace millrace
