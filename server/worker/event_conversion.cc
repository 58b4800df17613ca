#include "server/worker/event_conversion.h"

#include <exception>
#include <new>
#include <string>

#include "absl/strings/string_view.h"
#include "engine/data/unicode_text.h"
#include "server/worker/plan_conversion.h"

namespace millrace {
namespace {

using Ended = v1::WorkerReport::Ended;

// What a string of a message may hold.
std::string Utf8(absl::string_view text) {
  std::string storage;
  return std::string(WellFormed(text, &storage));
}

v1::Reason ToReason(FailureReason reason) {
  switch (reason) {
    case FailureReason::kInvalid:
      return v1::REASON_INVALID;
    case FailureReason::kNonFiniteLoss:
      return v1::REASON_NON_FINITE_LOSS;
    case FailureReason::kOutOfMemory:
      return v1::REASON_OUT_OF_MEMORY;
    case FailureReason::kDiskFull:
      return v1::REASON_DISK_FULL;
    case FailureReason::kInternal:
      return v1::REASON_INTERNAL;
  }
  return v1::REASON_INTERNAL;
}

Ended::Outcome ToOutcome(TrainResult::Outcome outcome) {
  switch (outcome) {
    case TrainResult::Outcome::kSucceeded:
      return Ended::SUCCEEDED;
    case TrainResult::Outcome::kStopped:
      return Ended::STOPPED;
    case TrainResult::Outcome::kCancelled:
      return Ended::CANCELLED;
  }
  return Ended::OUTCOME_UNSPECIFIED;
}

Ended Failed(v1::Reason reason, const std::string& message) {
  Ended ended;
  ended.set_outcome(Ended::FAILED);
  ended.set_reason(reason);
  ended.set_message(Utf8(message));
  return ended;
}

Ended ToEnded(const absl::StatusOr<TrainResult>& result) {
  if (!result.ok()) {
    return Failed(ToReason(FailureReasonOf(result.status())),
                  std::string(result.status().message()));
  }
  Ended ended;
  ended.set_outcome(ToOutcome(result->outcome));
  ended.set_step(result->step);
  if (result->outcome == TrainResult::Outcome::kCancelled) ended.set_reason(v1::REASON_USER);
  return ended;
}

}  // namespace

v1::StepMetrics ToProto(const StepMetrics& metrics) {
  v1::StepMetrics proto;
  proto.set_step(metrics.step);
  proto.set_loss(metrics.loss);
  proto.set_gradient_norm(metrics.gradient_norm);
  proto.set_learning_rate(metrics.learning_rate);
  proto.set_tokens(metrics.tokens);
  proto.set_step_seconds(metrics.step_seconds);
  proto.set_tokens_per_second(metrics.tokens_per_second);
  proto.set_speed_of_light_ratio(metrics.speed_of_light_ratio);
  proto.set_total_tokens(metrics.total_tokens);
  *proto.mutable_stalls() = ToProto(metrics.stalls);
  return proto;
}

v1::EvaluationMetrics ToProto(const EvaluationMetrics& metrics) {
  v1::EvaluationMetrics proto;
  proto.set_step(metrics.step);
  proto.set_loss(metrics.loss);
  proto.set_tokens(metrics.tokens);
  proto.set_seconds(metrics.seconds);
  return proto;
}

v1::CheckpointSaved ToProto(const CheckpointSaved& checkpoint) {
  v1::CheckpointSaved proto;
  proto.set_step(checkpoint.step);
  proto.set_size_bytes(checkpoint.size_bytes);
  proto.set_seconds(checkpoint.seconds);
  proto.set_trigger(checkpoint.trigger);
  return proto;
}

v1::TraceSaved ToProto(const TraceSaved& trace) {
  v1::TraceSaved proto;
  proto.set_first_step(trace.first_step);
  proto.set_last_step(trace.last_step);
  proto.set_path(trace.path);
  proto.set_size_bytes(trace.size_bytes);
  return proto;
}

v1::Sample ToProto(const Sample& sample) {
  v1::Sample proto;
  proto.set_step(sample.step);
  proto.set_prompt(Utf8(sample.prompt));
  proto.set_text(Utf8(sample.text));
  return proto;
}

v1::MemoryUsage ToProto(const MemoryUsage& memory) {
  v1::MemoryUsage proto;
  for (const MemoryPool& pool : memory.pools) {
    v1::MemoryUsage::Pool* added = proto.add_pools();
    added->set_purpose(pool.purpose);
    added->set_bytes(pool.bytes);
  }
  proto.set_peak_device_bytes(memory.peak_device_bytes);
  proto.set_peak_resident_bytes(memory.peak_resident_bytes);
  return proto;
}

Ended RunToEnd(absl::FunctionRef<absl::StatusOr<TrainResult>()> run) {
  try {
    return ToEnded(run());
  } catch (const std::bad_alloc&) {
    return Failed(v1::REASON_OUT_OF_MEMORY,
                  "memory ran out; lower train.tokens_per_micro_batch or the model's size, or free "
                  "memory on this node");
  } catch (const std::exception& error) {
    return Failed(v1::REASON_INTERNAL, error.what());
  }
}

WorkerExitCode ExitCodeOf(const Ended& ended) {
  switch (ended.outcome()) {
    case Ended::SUCCEEDED:
      return WorkerExitCode::kDone;
    case Ended::STOPPED:
      return WorkerExitCode::kStopped;
    case Ended::CANCELLED:
      return WorkerExitCode::kCancelled;
    default:
      return WorkerExitCodeOf(ended.reason());
  }
}

}  // namespace millrace
