#include "engine/schedule/builder.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/base/aligned_buffer.h"
#include "engine/model/block.h"
#include "engine/model/head.h"
#include "engine/schedule/happens_before.h"

namespace millrace {
namespace {

size_t SlabBytes(const SlabLayout& layout, DType dtype) {
  return static_cast<size_t>(layout.count) * SizeOf(dtype);
}

// Adds instructions, and works out from their operands what each must wait for.
class Builder {
 public:
  Builder(const ScheduledModel& model, const Plan& plan)
      : model_(model), plan_(plan), shape_(plan.shape) {}

  Schedule Finish() && {
    // Every buffer has a place of its own; sharing is in the schedule (slots, scratch), not in
    // addresses.
    size_t offset = 0;
    for (Buffer& buffer : schedule_.buffers) {
      buffer.offset = offset;
      offset += AlignUp(buffer.bytes, kSlabAlignment);
    }
    schedule_.device_bytes = offset;
    return std::move(schedule_);
  }

  void Step(bool pending_update) {
    MakeBuffers(/*training=*/true);
    const bool before_upload = pending_update && plan_.update_time == UpdateTime::kBeforeNextUpload;

    if (before_upload) Update(0, StreamId::kUpload);
    for (int64_t b = 0; b < shape_.micro_batches; ++b) Embed(b);
    for (int unit = 1; unit < model_.head(); ++unit) {
      if (before_upload) Update(unit, StreamId::kUpload);
      const int slot = Upload(unit);
      for (int64_t b = 0; b < shape_.micro_batches; ++b) {
        Forward(Opcode::kBlockForward, unit, b, slot);
      }
    }
    if (before_upload) Update(model_.head(), StreamId::kUpload);
    Head();
    for (int unit = model_.head() - 1; unit >= 1; --unit) {
      const int slot = Upload(unit);
      // Last in, first out: what forward kept last is used, and given back, first.
      for (int64_t b = shape_.micro_batches - 1; b >= 0; --b) {
        if (!Kept(unit, b)) Forward(Opcode::kBlockRecompute, unit, b, slot);
        Backward(unit, b, slot);
      }
      LandGradient(unit);
    }
    for (int64_t b = 0; b < shape_.micro_batches; ++b) {
      Add({.opcode = Opcode::kEmbedBackward,
           .stream = StreamId::kDownload,
           .unit = 0,
           .micro_batch = static_cast<int>(b),
           .input = residual_gradients_[b],
           .gradient = host_gradients_[0]},
          {Read(residual_gradients_[b]), Read(host_gradients_[0]), Write(host_gradients_[0])});
    }
    GradientReady(0);
  }

  void Evaluate() {
    MakeBuffers(/*training=*/false);
    Embed(0);
    for (int unit = 1; unit < model_.head(); ++unit) {
      Forward(Opcode::kBlockForward, unit, 0, Upload(unit));
    }
    const int slot = Upload(model_.head());
    Instruction head{.opcode = Opcode::kHeadEvaluate,
                     .stream = StreamId::kCompute,
                     .unit = model_.head(),
                     .micro_batch = 0,
                     .weights = slot,
                     .input = Residual(model_.head(), 0),
                     .scratch = head_scratch_};
    std::vector<Access> accesses = {Read(head.input), Write(head_scratch_), Write(workspace_),
                                    Write(loss_)};
    ReadWeights(accesses, slot, model_.head());
    BindTiedWeights(head, accesses);
    Add(std::move(head), std::move(accesses));
  }

 private:
  bool tied() const { return model_.spec.tied_embeddings; }

  int AddBuffer(BufferKind kind, int64_t index, size_t bytes) {
    schedule_.buffers.push_back({kind, static_cast<int>(index), bytes});
    history_.emplace_back();
    return static_cast<int>(schedule_.buffers.size()) - 1;
  }

  void MakeBuffers(bool training) {
    const ModelSpec& spec = model_.spec;
    const DType dtype = model_.compute_dtype;
    const int64_t tokens = shape_.tokens_per_micro_batch;
    const int64_t micro_batches = training ? shape_.micro_batches : 1;
    const size_t residual_bytes = static_cast<size_t>(tokens * spec.hidden_size) * SizeOf(dtype);

    // First, so that it has the same place in every schedule.
    rotary_table_ = AddBuffer(BufferKind::kRotaryTable, 0, RotaryTableBytes(spec, shape_));
    size_t slot_bytes = 0, accumulator_bytes = 0, converted_bytes = 0;
    for (int unit = 0; unit < static_cast<int>(model_.layouts.size()); ++unit) {
      host_weights_.push_back(AddBuffer(BufferKind::kHostWeights, unit, 0));
      host_gradients_.push_back(AddBuffer(BufferKind::kHostGradient, unit, 0));
      if (unit == 0) continue;
      slot_bytes = std::max(slot_bytes, SlabBytes(model_.layouts[unit], dtype));
      const DType accumulator = AccumulatorDType(model_, shape_, unit);
      const bool convert = accumulator != model_.gradient_dtypes[unit];
      if (convert || !plan_.unified) {
        accumulator_bytes =
            std::max(accumulator_bytes, SlabBytes(model_.layouts[unit], accumulator));
      }
      if (convert && !plan_.unified) {
        converted_bytes = std::max(converted_bytes,
                                   SlabBytes(model_.layouts[unit], model_.gradient_dtypes[unit]));
      }
    }
    loss_ = AddBuffer(BufferKind::kLoss, 0, 0);
    norm_ = AddBuffer(BufferKind::kNorm, 0, 0);
    for (int slot = 0; slot < plan_.weight_slots; ++slot) {
      slots_.push_back(AddBuffer(BufferKind::kWeightSlot, slot, plan_.unified ? 0 : slot_bytes));
    }
    if (tied()) {
      tied_slot_ = AddBuffer(BufferKind::kWeightSlot, plan_.weight_slots,
                             plan_.unified ? 0 : SlabBytes(model_.layouts[0], dtype));
    }
    // Forward alone needs the input and the output of one unit; training keeps every unit's input.
    residual_units_ = training ? model_.head() : 2;
    for (int64_t i = 0; i < residual_units_ * micro_batches; ++i) {
      residuals_.push_back(AddBuffer(BufferKind::kResidual, i, residual_bytes));
    }
    for (int64_t b = 0; b < micro_batches; ++b) {
      positions_.push_back(
          AddBuffer(BufferKind::kPositions, b, static_cast<size_t>(tokens) * sizeof(int32_t)));
    }
    const int64_t saved_slots = training ? plan_.kept_passes : 1;
    for (int64_t i = 0; i < saved_slots; ++i) {
      saved_.push_back(AddBuffer(BufferKind::kSaved, i, BlockSavedBytes(spec, tokens, dtype)));
    }
    head_scratch_ = AddBuffer(BufferKind::kHeadScratch, 0,
                              HeadScratchBytes(spec, tokens, shape_.token_chunk, dtype));
    workspace_ = AddBuffer(BufferKind::kOpsWorkspace, 0, model_.ops_workspace_bytes);
    if (!training) return;

    for (int64_t b = 0; b < micro_batches; ++b) {
      residual_gradients_.push_back(AddBuffer(BufferKind::kResidualGradient, b, residual_bytes));
    }
    block_scratch_ =
        AddBuffer(BufferKind::kBlockScratch, 0, BlockScratchBytes(spec, tokens, dtype));
    accumulator_ = AddBuffer(BufferKind::kAccumulator, 0, accumulator_bytes);
    converted_ = AddBuffer(BufferKind::kConverted, 0, converted_bytes);
    if (tied()) {
      tied_accumulator_ =
          AddBuffer(BufferKind::kAccumulator, 1,
                    plan_.unified ? 0 : SlabBytes(model_.layouts[0], model_.gradient_dtypes[0]));
    }
  }

  // --- Operands ---------------------------------------------------------------------------------

  Access Read(int buffer) const { return {buffer, false, schedule_.buffers[buffer].bytes}; }
  Access Write(int buffer) const { return {buffer, true, schedule_.buffers[buffer].bytes}; }
  Access ReadSlab(int buffer, int unit, DType dtype) const {
    return {buffer, false, Bound(buffer, unit, dtype)};
  }
  Access WriteSlab(int buffer, int unit, DType dtype) const {
    return {buffer, true, Bound(buffer, unit, dtype)};
  }
  // The weights of `unit` in `slot`; where that is a binding, the host's own.
  void ReadWeights(std::vector<Access>& accesses, int slot, int unit) const {
    accesses.push_back(ReadSlab(slot, unit, model_.compute_dtype));
    if (plan_.unified) accesses.push_back(Read(host_weights_[unit]));
  }
  // A bound buffer takes no device memory.
  size_t Bound(int buffer, int unit, DType dtype) const {
    return schedule_.buffers[buffer].bytes == 0 ? 0 : SlabBytes(model_.layouts[unit], dtype);
  }

  void ReadPass(std::vector<Access>& accesses, int64_t micro_batch) const {
    accesses.push_back(Read(rotary_table_));
    accesses.push_back(Read(positions_[micro_batch]));
  }

  int Residual(int unit, int64_t micro_batch) const {
    const int64_t micro_batches = static_cast<int64_t>(residuals_.size()) / residual_units_;
    return residuals_[(unit - 1) % residual_units_ * micro_batches + micro_batch];
  }

  // Position of a block's pass over a micro-batch, counted from the end of forward.
  int64_t FromEnd(int unit, int64_t micro_batch) const {
    const int64_t position = (unit - 1) * shape_.micro_batches + micro_batch;
    return model_.num_blocks() * shape_.micro_batches - 1 - position;
  }
  bool Kept(int unit, int64_t micro_batch) const {
    return FromEnd(unit, micro_batch) < plan_.kept_passes;
  }
  int Saved(int unit, int64_t micro_batch) const {
    return saved_[FromEnd(unit, micro_batch) % static_cast<int64_t>(saved_.size())];
  }

  // Where the gradient of `unit` is made; the host's own memory where that is the device's.
  int GradientBuffer(int unit) const {
    const bool convert = AccumulatorDType(model_, shape_, unit) != model_.gradient_dtypes[unit];
    return convert || !plan_.unified ? accumulator_ : host_gradients_[unit];
  }
  int TiedGradientBuffer() const { return plan_.unified ? host_gradients_[0] : tied_accumulator_; }

  // --- Instructions -----------------------------------------------------------------------------

  // What happened to a buffer last.
  struct History {
    int writer = kNone;
    std::vector<int> readers;  // since then
  };

  void Add(Instruction instruction, std::vector<Access> accesses) {
    const int index = static_cast<int>(schedule_.instructions.size());
    std::vector<int> needed;
    for (const Access& access : accesses) {
      const History& history = history_[access.buffer];
      if (history.writer != kNone) needed.push_back(history.writer);
      if (access.write) {
        needed.insert(needed.end(), history.readers.begin(), history.readers.end());
      }
    }
    // Newest first, so that a wait that others imply is not written down.
    std::sort(needed.rbegin(), needed.rend());
    needed.erase(std::unique(needed.begin(), needed.end()), needed.end());
    for (int earlier : needed) {
      if (order_.OrderedBeforeNext(schedule_, earlier, instruction.stream)) continue;
      const bool implied =
          std::any_of(instruction.waits.begin(), instruction.waits.end(),
                      [&](int wait) { return order_.Ordered(schedule_, earlier, wait); });
      if (!implied) instruction.waits.push_back(earlier);
    }
    for (const Access& access : accesses) {
      History& history = history_[access.buffer];
      if (access.write) {
        history.writer = index;
        history.readers.clear();
      } else {
        history.readers.push_back(index);
      }
    }
    instruction.accesses = std::move(accesses);
    order_.Add(instruction);
    schedule_.instructions.push_back(std::move(instruction));
  }

  void Update(int unit, StreamId stream) {
    Add({.opcode = Opcode::kUpdate, .stream = stream, .unit = unit},
        {Read(host_gradients_[unit]), Read(norm_), Read(loss_), Write(host_weights_[unit])});
  }

  int Upload(int unit) {
    const int slot = slots_[uploads_++ % slots_.size()];
    Add({.opcode = Opcode::kUpload, .stream = StreamId::kUpload, .unit = unit, .weights = slot},
        {Read(host_weights_[unit]), WriteSlab(slot, unit, model_.compute_dtype)});
    return slot;
  }

  void Embed(int64_t micro_batch) {
    const int output = Residual(1, micro_batch);
    Add({.opcode = Opcode::kEmbedForward,
         .stream = StreamId::kUpload,
         .unit = 0,
         .micro_batch = static_cast<int>(micro_batch),
         .output = output},
        {Read(host_weights_[0]), Write(output), Write(positions_[micro_batch])});
  }

  void Forward(Opcode opcode, int unit, int64_t micro_batch, int slot) {
    const int input = Residual(unit, micro_batch);
    const int saved = Saved(unit, micro_batch);
    Instruction instruction{.opcode = opcode,
                            .stream = StreamId::kCompute,
                            .unit = unit,
                            .micro_batch = static_cast<int>(micro_batch),
                            .weights = slot,
                            .input = input,
                            .saved = saved};
    std::vector<Access> accesses = {Read(input), Write(saved), Write(workspace_)};
    ReadWeights(accesses, slot, unit);
    ReadPass(accesses, micro_batch);
    if (opcode == Opcode::kBlockForward) {
      instruction.output = Residual(unit + 1, micro_batch);
      accesses.push_back(Write(instruction.output));
    }
    Add(std::move(instruction), std::move(accesses));
  }

  void BindTiedWeights(Instruction& head, std::vector<Access>& accesses) {
    if (!tied()) return;
    Add({.opcode = Opcode::kUpload, .stream = StreamId::kUpload, .unit = 0, .weights = tied_slot_},
        {Read(host_weights_[0]), WriteSlab(tied_slot_, 0, model_.compute_dtype)});
    head.tied_weights = tied_slot_;
    ReadWeights(accesses, tied_slot_, 0);
  }

  void Head() {
    const int unit = model_.head();
    Add({.opcode = Opcode::kClearEmbeddingGradient, .stream = StreamId::kDownload, .unit = 0},
        {Write(host_gradients_[0])});
    const int slot = Upload(unit);
    const int gradient = GradientBuffer(unit);
    const DType accumulator = AccumulatorDType(model_, shape_, unit);
    Instruction head{.opcode = Opcode::kHead,
                     .stream = StreamId::kCompute,
                     .unit = unit,
                     .weights = slot,
                     .scratch = head_scratch_,
                     .gradient = gradient};
    std::vector<Access> shared = {Write(head_scratch_), Write(workspace_),
                                  WriteSlab(gradient, unit, accumulator), Write(loss_)};
    ReadWeights(shared, slot, unit);
    BindTiedWeights(head, shared);
    if (tied()) {
      head.tied_gradient = TiedGradientBuffer();
      shared.push_back(WriteSlab(head.tied_gradient, 0, model_.gradient_dtypes[0]));
    }
    for (int64_t b = 0; b < shape_.micro_batches; ++b) {
      Instruction instruction = head;
      instruction.micro_batch = static_cast<int>(b);
      instruction.input = Residual(unit, b);
      instruction.output = residual_gradients_[b];
      instruction.first_gradient = b == 0;
      std::vector<Access> accesses = shared;
      if (b > 0) accesses.push_back(ReadSlab(gradient, unit, accumulator));
      accesses.push_back(Read(instruction.input));
      accesses.push_back(Write(instruction.output));
      Add(std::move(instruction), std::move(accesses));
    }
    LandGradient(unit);
    if (tied() && !plan_.unified) {
      Add({.opcode = Opcode::kDownloadGradient,
           .stream = StreamId::kDownload,
           .unit = 0,
           .input = tied_accumulator_},
          {ReadSlab(tied_accumulator_, 0, model_.gradient_dtypes[0]), Write(host_gradients_[0])});
    }
  }

  void Backward(int unit, int64_t micro_batch, int slot) {
    const int input = Residual(unit, micro_batch);
    const int saved = Saved(unit, micro_batch);
    const int gradient = GradientBuffer(unit);
    const int residual_gradient = residual_gradients_[micro_batch];
    const bool first = micro_batch == shape_.micro_batches - 1;
    const DType made = AccumulatorDType(model_, shape_, unit);
    std::vector<Access> accesses = {Read(input),
                                    Read(saved),
                                    Write(block_scratch_),
                                    Write(workspace_),
                                    Read(residual_gradient),
                                    Write(residual_gradient),
                                    WriteSlab(gradient, unit, made)};
    if (!first) accesses.push_back(ReadSlab(gradient, unit, made));
    ReadWeights(accesses, slot, unit);
    ReadPass(accesses, micro_batch);
    Add({.opcode = Opcode::kBlockBackward,
         .stream = StreamId::kCompute,
         .unit = unit,
         .micro_batch = static_cast<int>(micro_batch),
         .weights = slot,
         .input = input,
         .output = residual_gradient,
         .saved = saved,
         .scratch = block_scratch_,
         .gradient = gradient,
         .first_gradient = first},
        std::move(accesses));
  }

  // From where it was made to where the host keeps it.
  void LandGradient(int unit) {
    const DType made = AccumulatorDType(model_, shape_, unit);
    const DType kept = model_.gradient_dtypes[unit];
    int source = GradientBuffer(unit);
    if (made != kept) {
      const int target = plan_.unified ? host_gradients_[unit] : converted_;
      Add({.opcode = Opcode::kConvertGradient,
           .stream = StreamId::kCompute,
           .unit = unit,
           .input = source,
           .output = target},
          {ReadSlab(source, unit, made), WriteSlab(target, unit, kept)});
      source = target;
    }
    if (!plan_.unified) {
      Add({.opcode = Opcode::kDownloadGradient,
           .stream = StreamId::kDownload,
           .unit = unit,
           .input = source},
          {ReadSlab(source, unit, kept), Write(host_gradients_[unit])});
    }
    GradientReady(unit);
  }

  void GradientReady(int unit) {
    Add({.opcode = Opcode::kGradientNorm, .stream = StreamId::kDownload, .unit = unit},
        {Read(host_gradients_[unit]), Write(host_gradients_[unit]), Read(norm_), Write(norm_)});
    if (plan_.update_time == UpdateTime::kAsGradientLands) Update(unit, StreamId::kDownload);
  }

  const ScheduledModel& model_;
  const Plan& plan_;
  const StepShape& shape_;
  Schedule schedule_;
  HappensBefore order_;
  std::vector<History> history_;  // one a buffer

  std::vector<int> host_weights_, host_gradients_, slots_, residuals_, residual_gradients_, saved_;
  std::vector<int> positions_;
  int rotary_table_ = kNone;
  int residual_units_ = 0;
  int loss_ = kNone, norm_ = kNone, tied_slot_ = kNone, block_scratch_ = kNone;
  int head_scratch_ = kNone, workspace_ = kNone, accumulator_ = kNone, converted_ = kNone;
  int tied_accumulator_ = kNone;
  size_t uploads_ = 0;
};

}  // namespace

size_t RotaryTableBytes(const ModelSpec& spec, const StepShape& shape) {
  if (spec.position != PositionKind::kRotary) return 0;
  return static_cast<size_t>(shape.longest_document * spec.head_dim) * sizeof(float);
}

DType AccumulatorDType(const ScheduledModel& model, const StepShape& shape, int unit) {
  const bool chunked = unit == model.head() && shape.tokens_per_micro_batch > shape.token_chunk;
  return shape.micro_batches > 1 || chunked ? DType::kF32 : model.gradient_dtypes[unit];
}

Schedule BuildStepSchedule(const ScheduledModel& model, const Plan& plan, bool pending_update) {
  Builder builder(model, plan);
  builder.Step(pending_update);
  return std::move(builder).Finish();
}

Schedule BuildForwardSchedule(const ScheduledModel& model, const Plan& plan) {
  Builder builder(model, plan);
  builder.Evaluate();
  return std::move(builder).Finish();
}

}  // namespace millrace
