// Issues the instructions of a schedule to a device's streams.
#ifndef MILLRACE_ENGINE_EXEC_EXECUTOR_H_
#define MILLRACE_ENGINE_EXEC_EXECUTOR_H_

#include <array>
#include <atomic>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/base/aligned_buffer.h"
#include "engine/base/thread_pool.h"
#include "engine/device/device.h"
#include "engine/exec/step_runner.h"
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
    float* logits = nullptr;  // set: logits of the last token instead of the loss
    double loss_sum = 0;
    double norm_sum = 0;  // Σ g² over all units
  };

  // As StepRunner::Create; `model` and `plan` outlive the executor.
  Executor(const ScheduledModel& model, const Plan& plan, Device* device, Ops* ops,
           ThreadPool* pool, HostState* state, const std::atomic<bool>* cancelled);

  // Fills what stays the same: the rotary table, at its place in every schedule.
  absl::Status Prepare(const Schedule& schedule);

  // Runs a verified schedule to its end.
  absl::Status Run(const Schedule& schedule, Pass& pass);

  // Where the gradient of the last step lies.
  GradientSlab HostGradient(int unit) {
    return {gradients_[unit].data(), model_.gradient_dtypes[unit]};
  }

  // End of the highest buffer in the arena that was handed to an instruction or to the ops.
  size_t peak_device_bytes() const { return peak_device_bytes_; }

 private:
  void Issue(const Schedule& schedule, const Instruction& instruction, Pass& pass);
  void EmbedForward(const Schedule& schedule, const Instruction& instruction, const Pass& pass);
  void EmbedBackward(const Schedule& schedule, const Instruction& instruction, const Pass& pass);
  void DownloadGradient(const Schedule& schedule, const Instruction& instruction);
  void ClearEmbeddingGradient();
  void Head(const Schedule& schedule, const Instruction& instruction, Pass& pass);
  void Block(const Schedule& schedule, const Instruction& instruction, const Pass& pass);
  void Update(int unit, Pass& pass);

  // Address in the arena of a buffer that is about to be used.
  std::byte* Place(const Buffer& buffer);
  // Address of an operand; nullptr for kNone.
  void* Address(const Schedule& schedule, int buffer);
  SlabGradient Gradient(const Schedule& schedule, const Instruction& instruction);
  PassContext Context(const Instruction& instruction, const Pass& pass);
  Stream& stream(StreamId id) { return *streams_[static_cast<size_t>(id)]; }

  const ScheduledModel& model_;
  const Plan& plan_;
  Device& device_;
  Ops& ops_;
  ThreadPool& pool_;
  HostState& state_;
  const std::atomic<bool>* cancelled_;

  std::array<std::unique_ptr<Stream>, kNumStreams> streams_;
  std::vector<std::unique_ptr<Event>> events_;
  std::vector<float> rotary_table_;
  // Places in the schedule that runs: positions of each micro-batch, and the rotary table.
  std::vector<const int32_t*> positions_;
  const float* device_rotary_table_ = nullptr;
  // Unified: host weights that each slot stands for.
  std::vector<void*> bound_;
  size_t peak_device_bytes_ = 0;
  // A slab each a unit.
  std::vector<AlignedBuffer> gradients_;
  // Discrete: rows on their way between the host's embedding and the device.
  AlignedBuffer upload_staging_, download_staging_;
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_EXEC_EXECUTOR_H_
