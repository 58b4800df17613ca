#include "engine/schedule/builder.h"

#include <utility>
#include <vector>

#include "engine/schedule/head_writer.h"
#include "engine/schedule/layer_inputs.h"
#include "engine/schedule/step_buffers.h"
#include "engine/schedule/step_writer.h"
#include "engine/schedule/weight_loads.h"

namespace millrace {
namespace {

// Writes a step down in program order, unit by unit. What the upload stream brings is written down
// as soon as the memory that it goes to is free, so that it travels while earlier units compute.
class Builder {
 public:
  Builder(const ScheduledModel& model, const Plan& plan, const PassShape& passes, bool training,
          bool pending_update)
      : w_(model, plan, passes, training, pending_update),
        plan_(plan),
        passes_(w_.passes()),
        b_(w_.buffers()),
        head_(w_.head()),
        inputs_(w_),
        head_writer_(w_) {}

  Schedule Step() {
    std::vector<int> uses;
    for (int64_t group = 0; group < passes_.groups; ++group) {
      for (int unit = 1; unit < head_; ++unit) uses.push_back(unit);
      for (int unit = head_ - 1; unit >= 1; --unit) uses.push_back(unit);
    }
    PlanLoads(uses, plan_.reuse_at_turn);

    w_.UpdatePending(0);
    for (int64_t group = 0; group < passes_.groups; ++group) Group(group);
    for (int64_t b = plan_.shape.micro_batches - 1; b >= 0; --b) Scatter(b);
    w_.GradientLanded(0);
    return std::move(w_).Finish();
  }

  Schedule Forward() {
    std::vector<int> uses;
    for (int unit = 1; unit < head_; ++unit) uses.push_back(unit);
    PlanLoads(uses, /*keep=*/true);
    int input = b_.input_ring[0], output = b_.input_ring[1];
    Gather(0, 0, input);
    for (int unit = 1; unit < head_; ++unit) {
      BlockForward(Opcode::kBlockForward, unit, 0, 0, input, b_.shared_saved, kNone, output);
      UseDone();
      head_writer_.UploadRange(unit);
      std::swap(input, output);
    }
    head_writer_.Evaluate(input);
    return std::move(w_).Finish();
  }

 private:
  // --- Order ------------------------------------------------------------------------------------

  void Group(int64_t group) {
    // In batch-major order micro-batches come last first, as sums need them.
    const auto micro_batch = [&](int64_t local) {
      return passes_.groups == 1 ? local : passes_.groups - 1 - group;
    };
    const bool last = w_.last_in_sum(micro_batch(0));

    Gather(micro_batch(0), 0, inputs_.New(0));
    // The first weights go ahead of the other micro-batches' rows.
    EmitLoads(1);
    for (int64_t l = 1; l < passes_.group; ++l) Gather(micro_batch(l), l, inputs_.New(l));
    EmitLoads(0);
    for (int unit = 1; unit < head_; ++unit) {
      for (int64_t l = 0; l < passes_.group; ++l) {
        const int64_t pass = passes_.Index(unit, l);
        const int input = inputs_.At(pass);
        const int output = inputs_.New(passes_.Index(unit + 1, l));
        BlockForward(Opcode::kBlockForward, unit, micro_batch(l), l, input, Saved(pass),
                     Remade(KeepOf(plan_, passes_, pass)), output);
        inputs_.Offload(passes_.Index(unit + 1, l));
        inputs_.Release(pass);
      }
      UseDone();
      if (group == 0) head_writer_.UploadRange(unit);
    }

    if (group == 0) ClearEmbeddingGradient();
    inputs_.PlanFetches();
    inputs_.Fetch();
    if (TiledHead(plan_)) {
      head_writer_.Tiles();
    } else {
      for (int64_t l = passes_.group - 1; l >= 0; --l) head_writer_.Whole(micro_batch(l), l);
      if (last) head_writer_.WholeDone();
    }

    FetchAccumulator(head_ - 1, micro_batch(0));
    for (int unit = head_ - 1; unit >= 1; --unit) {
      if (unit > 1) FetchAccumulator(unit - 1, micro_batch(0));
      for (int64_t l = passes_.group - 1; l >= 0; --l) BlockBackward(unit, micro_batch(l), l);
      UseDone();
      BlockGradientDone(unit, last);
      if (last) head_writer_.DownloadRange(unit);
    }
    if (passes_.groups > 1) DownloadRows(micro_batch(0), 0);
  }

  // --- Weights ----------------------------------------------------------------------------------

  void PlanLoads(const std::vector<int>& uses, bool keep) {
    const int blocks = head_ - 1;
    loads_ = PlanWeightLoads(
        uses, plan_.weight_slots,
        [&](int unit) { return IsResident(unit, plan_.resident_units, blocks); }, keep);
  }

  // Emits the loads whose slots are free, at least the first `needed`.
  void EmitLoads(int needed) {
    while (emitted_loads_ < static_cast<int>(loads_.loads.size())) {
      const WeightLoad& load = loads_.loads[emitted_loads_];
      if (load.after_use >= uses_done_ && emitted_loads_ >= needed) return;
      w_.UpdatePending(load.unit);
      w_.Upload(load.unit, b_.slots[load.slot], 0, 0);
      ++emitted_loads_;
    }
  }
  int UseSlot() {
    const WeightLoads::Use& use = loads_.uses[uses_done_];
    EmitLoads(use.loads);
    return b_.slots[use.slot];
  }
  void UseDone() {
    ++uses_done_;
    EmitLoads(0);
  }

  // --- Embedding --------------------------------------------------------------------------------

  // Rows of the embedding for a micro-batch, and the positions of its tokens.
  void Gather(int64_t micro_batch, int64_t local, int output) {
    const int b = static_cast<int>(micro_batch);
    if (plan_.unified) {
      w_.Emit({.opcode = Opcode::kEmbedGather,
               .stream = StreamId::kHost,
               .unit = 0,
               .micro_batch = b,
               .output = output,
               .positions = b_.positions[local]},
              {w_.Read(b_.host_weights[0]), w_.Write(output), w_.Write(b_.positions[local])});
      return;
    }
    const bool stays = !b_.host_inputs.empty() && inputs_.Offloaded(local);
    const int rows = stays ? b_.host_inputs[local]
                           : b_.staging_up[static_cast<size_t>(gathers_++) % b_.staging_up.size()];
    w_.Emit({.opcode = Opcode::kEmbedGather,
             .stream = StreamId::kHost,
             .unit = 0,
             .micro_batch = b,
             .output = rows},
            {w_.Read(b_.host_weights[0]), w_.Write(rows)});
    w_.Emit({.opcode = Opcode::kUploadRows,
             .stream = StreamId::kUpload,
             .unit = 0,
             .micro_batch = b,
             .input = rows,
             .output = output,
             .positions = b_.positions[local]},
            {w_.Read(rows), w_.Write(output), w_.Write(b_.positions[local])});
  }

  void ClearEmbeddingGradient() {
    w_.Emit({.opcode = Opcode::kClearEmbeddingGradient,
             .stream = StreamId::kHost,
             .unit = 0,
             .output = b_.host_gradients[0]},
            {w_.Write(b_.host_gradients[0])});
  }

  int StagedRows(int64_t micro_batch) const {
    return b_.staging_down[static_cast<size_t>(micro_batch) % b_.staging_down.size()];
  }
  void DownloadRows(int64_t micro_batch, int64_t local) {
    if (plan_.unified) return;
    const int gradient = w_.ResidualGradient(micro_batch, local), rows = StagedRows(micro_batch);
    w_.Emit({.opcode = Opcode::kDownloadRows,
             .stream = StreamId::kDownload,
             .unit = 0,
             .micro_batch = static_cast<int>(micro_batch),
             .input = gradient,
             .output = rows},
            {w_.Read(gradient), w_.Write(rows)});
  }
  void Scatter(int64_t micro_batch) {
    if (passes_.groups == 1) DownloadRows(micro_batch, micro_batch);
    const int rows = plan_.unified ? b_.residual_gradients[micro_batch] : StagedRows(micro_batch);
    const int gradient = b_.host_gradients[0];
    w_.Emit({.opcode = Opcode::kEmbedScatter,
             .stream = StreamId::kHost,
             .unit = 0,
             .micro_batch = static_cast<int>(micro_batch),
             .input = rows,
             .gradient = gradient},
            {w_.Read(rows), w_.Read(gradient), w_.Write(gradient)});
  }

  // --- Blocks -----------------------------------------------------------------------------------

  int Remade(KeepLevel keep) const { return keep == KeepLevel::kSelective ? b_.remade : kNone; }
  int Saved(int64_t pass) const {
    return b_.saved[pass] == kNone ? b_.shared_saved : b_.saved[pass];
  }
  void ReadPass(std::vector<Access>& accesses, int64_t local) const {
    accesses.push_back(w_.Read(b_.rotary_table));
    accesses.push_back(w_.Read(b_.positions[local]));
  }

  void BlockForward(Opcode opcode, int unit, int64_t micro_batch, int64_t local, int input,
                    int saved, int remade, int output) {
    const int slot = UseSlot();
    std::vector<Access> accesses = {w_.Read(input), w_.Write(b_.workspace)};
    if (opcode == Opcode::kBlockRemake) {
      accesses.push_back(w_.Read(saved));
    } else {
      accesses.push_back(w_.Write(saved));
    }
    if (remade != kNone) accesses.push_back(w_.Write(remade));
    if (output != kNone) accesses.push_back(w_.Write(output));
    w_.ReadWeights(accesses, slot, unit, w_.Count(unit));
    ReadPass(accesses, local);
    w_.Emit({.opcode = opcode,
             .stream = StreamId::kCompute,
             .unit = unit,
             .micro_batch = static_cast<int>(micro_batch),
             .weights = slot,
             .input = input,
             .output = output,
             .saved = saved,
             .remade = remade,
             .positions = b_.positions[local]},
            std::move(accesses));
  }

  void BlockBackward(int unit, int64_t micro_batch, int64_t local) {
    const int64_t pass = passes_.Index(unit, local);
    const KeepLevel keep = KeepOf(plan_, passes_, pass);
    const int input = inputs_.At(pass);
    const int saved = Saved(pass), remade = Remade(keep);
    // What passes make again lies in memory that they share, where forward has left the last.
    const bool still_there =
        pass + 1 == passes_.passes() || KeepOf(plan_, passes_, pass + 1) != keep;
    if (keep == KeepLevel::kRecompute && !still_there) {
      BlockForward(Opcode::kBlockRecompute, unit, micro_batch, local, input, saved, kNone, kNone);
    } else if (keep == KeepLevel::kSelective && !still_there) {
      BlockForward(Opcode::kBlockRemake, unit, micro_batch, local, input, saved, remade, kNone);
    }
    const int slot = UseSlot();
    const int gradient = BlockGradient(unit);
    const int residual_gradient = w_.ResidualGradient(micro_batch, local);
    const bool first = w_.first_in_sum(micro_batch);
    std::vector<Access> accesses = {w_.Read(input),
                                    w_.Read(saved),
                                    w_.Write(b_.block_scratch),
                                    w_.Write(b_.workspace),
                                    w_.Read(residual_gradient),
                                    w_.Write(residual_gradient)};
    if (remade != kNone) accesses.push_back(w_.Read(remade));
    w_.AddGradient(accesses, gradient, 0, w_.Count(unit),
                   AccumulatorDType(w_.model(), plan_.shape, unit), first);
    w_.ReadWeights(accesses, slot, unit, w_.Count(unit));
    ReadPass(accesses, local);
    w_.Emit({.opcode = Opcode::kBlockBackward,
             .stream = StreamId::kCompute,
             .unit = unit,
             .micro_batch = static_cast<int>(micro_batch),
             .weights = slot,
             .input = input,
             .output = residual_gradient,
             .saved = saved,
             .remade = remade,
             .scratch = b_.block_scratch,
             .positions = b_.positions[local],
             .gradient = gradient,
             .first_gradient = first},
            std::move(accesses));
    inputs_.Release(pass);
    inputs_.Fetch();
  }

  // --- Gradients of blocks ----------------------------------------------------------------------

  // Where a block's gradient is made.
  int BlockGradient(int unit) const {
    if (!b_.accumulators.empty()) {
      return b_.accumulators[static_cast<size_t>(unit) % b_.accumulators.size()];
    }
    return w_.Convert(unit) ? b_.host_accumulators[unit] : b_.host_gradients[unit];
  }

  // Batch-major: brings back what the micro-batches before have added up.
  void FetchAccumulator(int unit, int64_t micro_batch) {
    if (passes_.groups == 1 || plan_.unified || w_.first_in_sum(micro_batch)) return;
    MoveAccumulator(Opcode::kFetchAccumulator, StreamId::kUpload, unit, b_.host_accumulators[unit],
                    BlockGradient(unit));
  }
  void MoveAccumulator(Opcode opcode, StreamId stream, int unit, int from, int to) {
    const DType dtype = AccumulatorDType(w_.model(), plan_.shape, unit);
    const int64_t count = w_.Count(unit);
    w_.Emit({.opcode = opcode, .stream = stream, .unit = unit, .input = from, .output = to},
            {w_.Part(from, false, 0, count, dtype), w_.Part(to, true, 0, count, dtype)});
  }

  void BlockGradientDone(int unit, bool last) {
    if (last) {
      w_.Land({.unit = unit,
               .count = w_.Count(unit),
               .made = BlockGradient(unit),
               .converted = b_.converted.empty()
                                ? kNone
                                : b_.converted[static_cast<size_t>(unit) % b_.converted.size()]});
      w_.GradientLanded(unit);
    } else if (!plan_.unified) {
      MoveAccumulator(Opcode::kOffloadAccumulator, StreamId::kDownload, unit, BlockGradient(unit),
                      b_.host_accumulators[unit]);
    }
  }

  StepWriter w_;
  const Plan& plan_;
  const PassShape& passes_;
  const StepBuffers& b_;
  const int head_;
  LayerInputs inputs_;
  HeadWriter head_writer_;

  WeightLoads loads_;
  int emitted_loads_ = 0, uses_done_ = 0;
  int64_t gathers_ = 0;
};

}  // namespace

Schedule BuildStepSchedule(const ScheduledModel& model, const Plan& plan, bool pending_update) {
  return Builder(model, plan, PassesOf(model, plan), /*training=*/true, pending_update).Step();
}

Schedule BuildForwardSchedule(const ScheduledModel& model, const Plan& plan) {
  const PassShape one{.groups = 1, .group = 1, .blocks = model.num_blocks()};
  return Builder(model, plan, one, /*training=*/false, /*pending_update=*/false).Forward();
}

}  // namespace millrace
