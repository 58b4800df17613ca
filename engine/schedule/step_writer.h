// What all parts of a step have in common: operands, weights on their way to the device, gradients
// on their way to the host, and updates. What follows what is the builder's business.
#ifndef MILLRACE_ENGINE_SCHEDULE_STEP_WRITER_H_
#define MILLRACE_ENGINE_SCHEDULE_STEP_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "engine/schedule/emitter.h"
#include "engine/schedule/plan.h"
#include "engine/schedule/schedule.h"
#include "engine/schedule/step_buffers.h"

namespace millrace {

class StepWriter {
 public:
  // `model` and `plan` outlive the writer. `pending_update`: the step before has left its updates.
  StepWriter(const ScheduledModel& model, const Plan& plan, const PassShape& passes, bool training,
             bool pending_update);

  const ScheduledModel& model() const { return model_; }
  const Plan& plan() const { return plan_; }
  const StepShape& shape() const { return plan_.shape; }
  const PassShape& passes() const { return passes_; }
  const StepBuffers& buffers() const { return buffers_; }
  int head() const { return model_.head(); }
  bool tied() const { return model_.spec.tied_embeddings; }
  int64_t Count(int unit) const { return model_.layouts[unit].count; }
  // Sums go over micro-batches from the last to the first.
  bool first_in_sum(int64_t micro_batch) const { return micro_batch == shape().micro_batches - 1; }
  bool last_in_sum(int64_t micro_batch) const { return micro_batch == 0; }
  int ResidualGradient(int64_t micro_batch, int64_t local) const {
    return buffers_.residual_gradients[plan_.unified ? micro_batch : local];
  }

  // --- Operands ---

  Access Read(int buffer) const { return {buffer, false, emitter_.buffer(buffer).bytes}; }
  Access Write(int buffer) const { return {buffer, true, emitter_.buffer(buffer).bytes}; }
  // Elements [begin, begin + count).
  Access Part(int buffer, bool write, int64_t begin, int64_t count, DType dtype) const;
  // Weights in a slot; where that is a binding, the host's own.
  void ReadWeights(std::vector<Access>& accesses, int slot, int unit, int64_t count) const;
  void AddGradient(std::vector<Access>& accesses, int buffer, int64_t begin, int64_t count,
                   DType dtype, bool first) const;

  // --- Instructions ---

  void Emit(Instruction instruction, std::vector<Access> accesses) {
    emitter_.Emit(std::move(instruction), std::move(accesses));
  }

  // Of elements [begin, begin + count) of the unit's slab; all when `count` is 0.
  void Upload(int unit, int slot, int64_t begin, int64_t count);
  // The update that the step before left, unless it has been made.
  void UpdatePending(int unit);

  // A gradient, or a range of one, on its way from where it was made to where the host keeps it.
  struct Landing {
    int unit;
    int64_t begin = 0;  // elements of the unit's slab
    int64_t count;
    int made;
    int converted = kNone;
    bool range_only = false;  // `made` and `converted` begin with the range, not with the slab
  };
  // The made gradient is of another type than the host's.
  bool Convert(int unit) const;
  void ConvertGradient(const Landing& landing);
  void DownloadGradient(const Landing& landing);
  void Land(const Landing& landing);
  // All of the unit's gradient is where the host keeps it.
  void GradientLanded(int unit);

  Schedule Finish() && { return std::move(emitter_).Finish(); }

 private:
  Access PartOf(const Landing& landing, int buffer, bool write, DType dtype) const;
  void Update(int unit);

  const ScheduledModel& model_;
  const Plan& plan_;
  const PassShape passes_;
  Emitter emitter_;
  const StepBuffers buffers_;
  std::vector<bool> update_pending_;  // by unit
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_SCHEDULE_STEP_WRITER_H_
