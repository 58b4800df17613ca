// Every metric of the daemon: name, kind, labels, help. Nothing is exported that is not in this
// table. Base units; counters end in `_total`; ratios run from 0 to 1; labels have few values, but
// `job_id`, whose series end with the job.
#ifndef MILLRACE_SERVER_OBSERVE_METRIC_DEFINITIONS_H_
#define MILLRACE_SERVER_OBSERVE_METRIC_DEFINITIONS_H_

namespace millrace {

enum class MetricKind { kCounter, kGauge, kHistogram };

struct MetricDefinition {
  const char* name;
  MetricKind kind;
  const char* help;
  // Separated by commas; empty for none.
  const char* labels = "";
};

namespace metric {

// The daemon.
inline constexpr MetricDefinition kBuildInfo = {"millrace_build_info", MetricKind::kGauge,
                                                "1, with the version as a label.", "version"};
inline constexpr MetricDefinition kResidentMemory = {
    "process_resident_memory_bytes", MetricKind::kGauge, "Resident memory of the daemon."};
inline constexpr MetricDefinition kStartTime = {"process_start_time_seconds", MetricKind::kGauge,
                                                "Unix time at which the daemon started."};
inline constexpr MetricDefinition kRpcHandled = {"grpc_server_handled_total", MetricKind::kCounter,
                                                 "Calls that ended, by gRPC code.",
                                                 "grpc_service,grpc_method,grpc_code"};
inline constexpr MetricDefinition kRpcSeconds = {
    "grpc_server_handling_seconds", MetricKind::kHistogram,
    "Time from the start of a call to its status.", "grpc_service,grpc_method"};
inline constexpr MetricDefinition kWatchSubscribers = {
    "millrace_watch_subscribers", MetricKind::kGauge, "Open WatchJob streams."};
inline constexpr MetricDefinition kStoreCommit = {
    "millrace_store_commit_seconds", MetricKind::kHistogram, "Time of a commit of the job store."};

// All jobs.
inline constexpr MetricDefinition kJobs = {"millrace_jobs", MetricKind::kGauge, "Jobs by state.",
                                           "state"};
inline constexpr MetricDefinition kJobTransitions = {"millrace_job_transitions_total",
                                                     MetricKind::kCounter,
                                                     "Changes of state of jobs.", "to,reason"};
inline constexpr MetricDefinition kJobRestarts = {
    "millrace_job_restarts_total", MetricKind::kCounter,
    "Jobs queued again because their worker had ended.", "reason"};
inline constexpr MetricDefinition kQueueWait = {"millrace_queue_wait_seconds",
                                                MetricKind::kHistogram,
                                                "Time in QUEUED before a worker was started."};
inline constexpr MetricDefinition kQueueOldest = {
    "millrace_queue_oldest_timestamp_seconds", MetricKind::kGauge,
    "Unix time since which the longest waiting job waits; 0 when none does."};
inline constexpr MetricDefinition kStepSeconds = {
    "millrace_train_step_seconds", MetricKind::kHistogram, "Time of a training step."};
inline constexpr MetricDefinition kCheckpointSave = {
    "millrace_checkpoint_save_seconds", MetricKind::kHistogram, "Time to save a checkpoint."};
inline constexpr MetricDefinition kCheckpointSaves = {
    "millrace_checkpoint_saves_total", MetricKind::kCounter, "Checkpoints saved.", "trigger"};

// A job that has not ended.
inline constexpr MetricDefinition kTrainSteps = {
    "millrace_train_steps_total", MetricKind::kCounter,
    "Steps done since the daemon started, those done again after a restart too.", "job_id"};
inline constexpr MetricDefinition kTrainTokens = {
    "millrace_train_tokens_total", MetricKind::kCounter, "Tokens of those steps.", "job_id"};
inline constexpr MetricDefinition kPlannedSteps = {
    "millrace_train_planned_steps", MetricKind::kGauge, "Steps of the whole job.", "job_id"};
inline constexpr MetricDefinition kProgressRatio = {
    "millrace_train_progress_ratio", MetricKind::kGauge, "Steps done of those planned.", "job_id"};
inline constexpr MetricDefinition kLoss = {"millrace_train_loss", MetricKind::kGauge,
                                           "Mean cross-entropy of the last step, in nats a token.",
                                           "job_id"};
inline constexpr MetricDefinition kLearningRate = {"millrace_train_learning_rate",
                                                   MetricKind::kGauge,
                                                   "Learning rate of the last step.", "job_id"};
inline constexpr MetricDefinition kGradientNorm = {
    "millrace_train_gradient_norm", MetricKind::kGauge,
    "Global L2 norm of the gradient of the last step, before clipping.", "job_id"};
inline constexpr MetricDefinition kSpeedOfLight = {
    "millrace_train_speed_of_light_ratio", MetricKind::kGauge,
    "Time of the needed matrix products at the machine's peak over the time of the last step.",
    "job_id"};
inline constexpr MetricDefinition kLastStepTime = {"millrace_train_last_step_timestamp_seconds",
                                                   MetricKind::kGauge,
                                                   "Unix time of the last step.", "job_id"};
inline constexpr MetricDefinition kEstimatedEnd = {
    "millrace_train_estimated_end_timestamp_seconds", MetricKind::kGauge,
    "Unix time at which the job should end.", "job_id"};
inline constexpr MetricDefinition kPredictedStepSeconds = {
    "millrace_train_predicted_step_seconds", MetricKind::kGauge,
    "Time of a step by the job's plan; millrace_train_step_seconds is what steps take.", "job_id"};
inline constexpr MetricDefinition kStreamStall = {
    "millrace_stream_stall_seconds_total", MetricKind::kCounter,
    "Time in which a job's device waited, by what it waited for.", "job_id,cause"};
inline constexpr MetricDefinition kEvaluationLoss = {
    "millrace_eval_loss", MetricKind::kGauge,
    "Mean cross-entropy of the last evaluation, in nats a token.", "job_id"};
inline constexpr MetricDefinition kMemoryUsed = {"millrace_memory_used_bytes", MetricKind::kGauge,
                                                 "Memory that a job has taken, by purpose.",
                                                 "job_id,pool"};
inline constexpr MetricDefinition kLastCheckpointTime = {
    "millrace_checkpoint_last_success_timestamp_seconds", MetricKind::kGauge,
    "Unix time of the last complete checkpoint.", "job_id"};

// Generation and evaluation.
inline constexpr MetricDefinition kInferenceCalls = {
    "millrace_inference_calls_total", MetricKind::kCounter,
    "Generations and evaluations that ended: ok, cancelled or error.", "kind,result"};
inline constexpr MetricDefinition kPromptTokens = {"millrace_generation_prompt_tokens_total",
                                                   MetricKind::kCounter, "Tokens of prompts."};
inline constexpr MetricDefinition kGeneratedTokens = {
    "millrace_generation_tokens_total", MetricKind::kCounter, "Tokens that were generated."};
inline constexpr MetricDefinition kGenerationSeconds = {
    "millrace_generation_seconds_total", MetricKind::kCounter,
    "Time in which prompts were read (prompt) and texts went on (text).", "phase"};
inline constexpr MetricDefinition kLoadedModels = {"millrace_loaded_models", MetricKind::kGauge,
                                                   "Models that are loaded for generation."};

// The box.
inline constexpr MetricDefinition kStorageFree = {
    "millrace_storage_free_bytes", MetricKind::kGauge,
    "Free bytes of the file system that holds the data folder."};
inline constexpr MetricDefinition kStorageReserved = {
    "millrace_storage_reserved_bytes", MetricKind::kGauge,
    "Bytes of declared datasets that are still to be received."};
inline constexpr MetricDefinition kCheckpointStored = {
    "millrace_checkpoint_stored_bytes", MetricKind::kGauge,
    "Bytes of the checkpoints of all jobs on disk, those half written too."};
inline constexpr MetricDefinition kTransferBytes = {
    "millrace_transfer_bytes_total", MetricKind::kCounter,
    "Bytes of datasets and models received and of checkpoints sent.", "direction,kind"};

}  // namespace metric

// All of the above.
inline constexpr const MetricDefinition* kAllMetrics[] = {
    &metric::kBuildInfo,        &metric::kResidentMemory,
    &metric::kStartTime,        &metric::kRpcHandled,
    &metric::kRpcSeconds,       &metric::kWatchSubscribers,
    &metric::kStoreCommit,      &metric::kJobs,
    &metric::kJobTransitions,   &metric::kJobRestarts,
    &metric::kQueueWait,        &metric::kQueueOldest,
    &metric::kStepSeconds,      &metric::kCheckpointSave,
    &metric::kCheckpointSaves,  &metric::kTrainSteps,
    &metric::kTrainTokens,      &metric::kPlannedSteps,
    &metric::kProgressRatio,    &metric::kLoss,
    &metric::kLearningRate,     &metric::kGradientNorm,
    &metric::kSpeedOfLight,     &metric::kLastStepTime,
    &metric::kEstimatedEnd,     &metric::kPredictedStepSeconds,
    &metric::kStreamStall,      &metric::kEvaluationLoss,
    &metric::kMemoryUsed,       &metric::kLastCheckpointTime,
    &metric::kStorageFree,      &metric::kStorageReserved,
    &metric::kCheckpointStored, &metric::kTransferBytes,
    &metric::kInferenceCalls,   &metric::kPromptTokens,
    &metric::kGeneratedTokens,  &metric::kGenerationSeconds,
    &metric::kLoadedModels,
};

}  // namespace millrace

#endif  // MILLRACE_SERVER_OBSERVE_METRIC_DEFINITIONS_H_
