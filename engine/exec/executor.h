// Issues the instructions of a schedule to a device's streams.
#ifndef MILLRACE_ENGINE_EXEC_EXECUTOR_H_
#define MILLRACE_ENGINE_EXEC_EXECUTOR_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/base/aligned_buffer.h"
#include "engine/base/thread_pool.h"
#include "engine/device/arena.h"
#include "engine/device/device.h"
#include "engine/exec/step_runner.h"
#include "engine/exec/trace_recorder.h"
#include "engine/model/block.h"
#include "engine/model/head.h"
#include "engine/ops/ops.h"
#include "engine/optim/gradient_slab.h"
#include "engine/optim/optimizer.h"
#include "engine/schedule/schedule.h"
#include "engine/state/host_state.h"

namespace millrace {

// An optimizer step with the factor that clipping puts on its gradients.
struct PendingUpdate {
  OptimizerStep step;
  double factor = 1;
  bool valid = false;
};

class Executor {
 public:
  // What one run of a schedule works on and results in.
  struct Pass {
    absl::Span<const TokenBatch> batches;
    float gradient_scale = 0;
    PendingUpdate update;
    float* logits = nullptr;            // set: logits of the last token instead of the loss
    TraceRecorder* recorder = nullptr;  // set: notes when each instruction ran
    double loss_sum = 0;
    // Σ g² of each unit: units land in an order that depends on the plan.
    std::vector<double> norm_sums;
    double norm_sum() const { return std::accumulate(norm_sums.begin(), norm_sums.end(), 0.0); }
  };

  // As StepRunner::Create; `model` and `plan` outlive the executor.
  Executor(const ScheduledModel& model, const Plan& plan, Device* device, Ops* ops,
           ThreadPool* host_pool, HostState* state, const std::atomic<bool>* cancelled);

  // Takes the host arena and fills what stays the same: the rotary tables, at their place in every
  // schedule. `schedules` are all that will run.
  absl::Status Prepare(absl::Span<const Schedule* const> schedules);

  // Runs a verified schedule to its end.
  absl::Status Run(const Schedule& schedule, Pass& pass);

  // Where a step's schedule leaves the gradient of `unit`.
  GradientSlab HostGradient(const Schedule& schedule, int unit);

  // End of the highest buffer in the arena that an instruction touched.
  size_t peak_device_bytes() const { return device_arena_.peak_bytes(); }

 private:
  absl::Status CheckCancelled() const;
  // Finds the addresses of everything that the instruction says it touches.
  absl::Status Place(const Schedule& schedule, const Instruction& instruction);
  void Issue(const Schedule& schedule, const Instruction& instruction, Pass& pass);

  void Upload(const Schedule& schedule, const Instruction& instruction);
  void UploadRows(const Instruction& instruction, const Pass& pass);
  void EmbedGather(const Instruction& instruction, const Pass& pass);
  void EmbedScatter(const Instruction& instruction, const Pass& pass);
  void ClearEmbeddingGradient(void* gradient);
  void ConvertToKept(const Schedule& schedule, const Instruction& instruction);
  void DownloadGradient(const Schedule& schedule, const Instruction& instruction);
  void Block(const Instruction& instruction, const Pass& pass);
  void Head(const Instruction& instruction, Pass& pass);
  void HeadTiles(const Schedule& schedule, const Instruction& instruction, Pass& pass);
  void Update(int unit, const GradientSlab& gradient, Pass& pass);

  // Address of an operand; nullptr for kNone.
  std::byte* Address(int buffer) const { return buffer == kNone ? nullptr : addresses_[buffer]; }
  // Of element `element` of a gradient that may begin with the instruction's range.
  std::byte* GradientAt(const Schedule& schedule, const Instruction& instruction, int buffer,
                        DType dtype) const;
  SlabGradient MadeGradient(const Instruction& instruction) const;
  HeadLoss LossOf(const Instruction& instruction, Pass& pass) const;
  PassContext Context(const Instruction& instruction, const Pass& pass);
  size_t RowBytes(const TokenBatch& batch) const;
  Stream& stream(StreamId id) { return *streams_[static_cast<size_t>(id)]; }

  const ScheduledModel& model_;
  const Plan& plan_;
  Device& device_;
  Ops& ops_;
  ThreadPool& host_pool_;
  HostState& state_;
  const std::atomic<bool>* cancelled_;

  Arena device_arena_;
  AlignedBuffer host_memory_;
  std::optional<Arena> host_arena_;
  std::array<std::unique_ptr<Stream>, kNumStreams> streams_;
  std::vector<std::unique_ptr<Event>> events_;
  std::vector<float> rotary_tables_;
  const float* device_rotary_tables_ = nullptr;
  // Of the buffers of the schedule that runs; a bound slot's is what it is bound to.
  std::vector<std::byte*> addresses_;
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_EXEC_EXECUTOR_H_
