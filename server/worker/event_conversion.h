// What the trainer tells, as the API has it.
#ifndef MILLRACE_SERVER_WORKER_EVENT_CONVERSION_H_
#define MILLRACE_SERVER_WORKER_EVENT_CONVERSION_H_

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "engine/train/train_events.h"
#include "engine/train/trainer.h"
#include "millrace/v1/training.pb.h"
#include "millrace/v1/worker.pb.h"
#include "server/worker/exit_codes.h"

namespace millrace {

v1::StepMetrics ToProto(const StepMetrics& metrics);
v1::EvaluationMetrics ToProto(const EvaluationMetrics& metrics);
v1::CheckpointSaved ToProto(const CheckpointSaved& checkpoint);
v1::TraceSaved ToProto(const TraceSaved& trace);
v1::Sample ToProto(const Sample& sample);
v1::MemoryUsage ToProto(const MemoryUsage& memory);

// Calls `run` and says how it ended, in words for the daemon; an exception that came out of it is
// an end like others.
v1::WorkerReport::Ended RunToEnd(absl::FunctionRef<absl::StatusOr<TrainResult>()> run);
// The same as the worker's exit code.
WorkerExitCode ExitCodeOf(const v1::WorkerReport::Ended& ended);

}  // namespace millrace

#endif  // MILLRACE_SERVER_WORKER_EVENT_CONVERSION_H_
