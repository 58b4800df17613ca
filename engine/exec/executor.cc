#include "engine/exec/executor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "engine/base/status_macros.h"
#include "engine/ops/embedding.h"
#include "engine/ops/rotary_table.h"
#include "engine/optim/gradient_norm.h"

namespace millrace {
namespace {

// Which instructions another stream waits for.
std::vector<bool> WaitedFor(const Schedule& schedule) {
  std::vector<bool> waited(schedule.instructions.size(), false);
  for (const Instruction& instruction : schedule.instructions) {
    for (int wait : instruction.waits) waited[wait] = true;
  }
  return waited;
}

}  // namespace

Executor::Executor(const ScheduledModel& model, const Plan& plan, Device* device, Ops* ops,
                   ThreadPool* pool, HostState* state, const std::atomic<bool>* cancelled)
    : model_(model),
      plan_(plan),
      device_(*device),
      ops_(*ops),
      pool_(*pool),
      state_(*state),
      cancelled_(cancelled) {
  for (int s = 0; s < kNumStreams; ++s) {
    streams_[s] = device_.CreateStream(NameOf(static_cast<StreamId>(s)));
  }
}

absl::Status Executor::Prepare(const Schedule& schedule) {
  const ModelSpec& spec = model_.spec;
  for (size_t unit = 0; unit < model_.layouts.size(); ++unit) {
    MILLRACE_ASSIGN_OR_RETURN(
        AlignedBuffer gradient,
        AlignedBuffer::Allocate(
            static_cast<size_t>(model_.layouts[unit].count) * SizeOf(model_.gradient_dtypes[unit]),
            "gradients"));
    gradients_.push_back(std::move(gradient));
  }
  if (!plan_.unified) {
    const size_t bytes =
        static_cast<size_t>(plan_.shape.tokens_per_micro_batch * spec.hidden_size) *
        SizeOf(model_.compute_dtype);
    MILLRACE_ASSIGN_OR_RETURN(upload_staging_, AlignedBuffer::Allocate(bytes, "staging"));
    MILLRACE_ASSIGN_OR_RETURN(download_staging_, AlignedBuffer::Allocate(bytes, "staging"));
  }
  if (spec.position != PositionKind::kRotary) return absl::OkStatus();
  rotary_table_.resize(RotaryTableBytes(spec, plan_.shape) / sizeof(float));
  FillRotaryTable(plan_.shape.longest_document, spec.head_dim, spec.rotary_theta,
                  rotary_table_.data());
  const Buffer& buffer = schedule.buffers.front();
  device_.CopyToDevice(stream(StreamId::kCompute), Place(buffer), rotary_table_.data(),
                       buffer.bytes);
  return stream(StreamId::kCompute).Synchronize();
}

absl::Status Executor::Run(const Schedule& schedule, Pass& pass) {
  bound_.assign(schedule.buffers.size(), nullptr);
  positions_.assign(pass.batches.size(), nullptr);
  device_rotary_table_ = nullptr;
  for (const Buffer& buffer : schedule.buffers) {
    if (buffer.kind == BufferKind::kOpsWorkspace) {
      ops_.SetWorkspace(Place(buffer), buffer.bytes);
    } else if (buffer.kind == BufferKind::kPositions) {
      positions_[buffer.index] = reinterpret_cast<const int32_t*>(Place(buffer));
    } else if (buffer.kind == BufferKind::kRotaryTable && buffer.bytes > 0) {
      device_rotary_table_ = reinterpret_cast<const float*>(Place(buffer));
    }
  }
  const std::vector<bool> waited = WaitedFor(schedule);
  while (events_.size() < schedule.instructions.size()) events_.push_back(device_.CreateEvent());

  absl::Status status;
  for (size_t i = 0; i < schedule.instructions.size() && status.ok(); ++i) {
    if (cancelled_ != nullptr && cancelled_->load(std::memory_order_acquire)) {
      status = absl::CancelledError("cancelled");
      break;
    }
    const Instruction& instruction = schedule.instructions[i];
    for (int wait : instruction.waits) stream(instruction.stream).Wait(*events_[wait]);
    Issue(schedule, instruction, pass);
    if (waited[i]) stream(instruction.stream).Record(*events_[i]);
  }
  // Also after an error: what is in flight reads `pass`.
  for (std::unique_ptr<Stream>& stream : streams_) status.Update(stream->Synchronize());
  return status;
}

std::byte* Executor::Place(const Buffer& buffer) {
  peak_device_bytes_ = std::max(peak_device_bytes_, buffer.offset + buffer.bytes);
  return device_.memory() + buffer.offset;
}

void* Executor::Address(const Schedule& schedule, int index) {
  if (index == kNone) return nullptr;
  const Buffer& buffer = schedule.buffers[index];
  switch (buffer.kind) {
    case BufferKind::kHostGradient:
      return HostGradient(buffer.index).data;
    case BufferKind::kWeightSlot:
      if (plan_.unified) return bound_[index];
      [[fallthrough]];
    default:
      return Place(buffer);
  }
}

PassContext Executor::Context(const Instruction& instruction, const Pass& pass) {
  const TokenBatch& batch = pass.batches[instruction.micro_batch];
  return {.spec = model_.spec,
          .ops = ops_,
          .stream = stream(instruction.stream),
          .tokens = static_cast<int64_t>(batch.inputs.size()),
          .boundaries = batch.boundaries,
          .positions = positions_[instruction.micro_batch],
          .rotary_table = device_rotary_table_};
}

SlabGradient Executor::Gradient(const Schedule& schedule, const Instruction& instruction) {
  return {.data = Address(schedule, instruction.gradient),
          .dtype = AccumulatorDType(model_, plan_.shape, instruction.unit),
          .accumulate = !instruction.first_gradient};
}

void Executor::Issue(const Schedule& schedule, const Instruction& instruction, Pass& pass) {
  const int unit = instruction.unit;
  Stream& on = stream(instruction.stream);
  switch (instruction.opcode) {
    case Opcode::kUpdate:
      on.RunOnHost([this, unit, &pass] {
        Update(unit, pass);
        return absl::OkStatus();
      });
      return;
    case Opcode::kUpload:
      if (plan_.unified) {
        bound_[instruction.weights] = state_.weights(unit);
      } else {
        device_.CopyToDevice(on, Address(schedule, instruction.weights),
                             state_.StreamedWeights(unit), state_.StreamedBytes(unit));
      }
      return;
    case Opcode::kEmbedForward:
      return EmbedForward(schedule, instruction, pass);
    case Opcode::kBlockForward:
    case Opcode::kBlockRecompute:
    case Opcode::kBlockBackward:
      return Block(schedule, instruction, pass);
    case Opcode::kHead:
    case Opcode::kHeadEvaluate:
      return Head(schedule, instruction, pass);
    case Opcode::kClearEmbeddingGradient:
      on.RunOnHost([this] {
        ClearEmbeddingGradient();
        return absl::OkStatus();
      });
      return;
    case Opcode::kEmbedBackward:
      return EmbedBackward(schedule, instruction, pass);
    case Opcode::kConvertGradient:
      ops_.Run(on, ConvertGradient{
                       .count = model_.layouts[unit].count,
                       .source = static_cast<const float*>(Address(schedule, instruction.input)),
                       .target = Address(schedule, instruction.output),
                       .target_dtype = model_.gradient_dtypes[unit]});
      return;
    case Opcode::kDownloadGradient:
      return DownloadGradient(schedule, instruction);
    case Opcode::kGradientNorm:
      on.RunOnHost([this, unit, &pass] {
        ClearGradientPadding(model_.layouts[unit], HostGradient(unit));
        pass.norm_sum += GradientSumOfSquares(model_.layouts[unit], HostGradient(unit), pool_);
        return absl::OkStatus();
      });
      return;
  }
}

void Executor::DownloadGradient(const Schedule& schedule, const Instruction& instruction) {
  const int unit = instruction.unit;
  const std::byte* source = static_cast<const std::byte*>(Address(schedule, instruction.input));
  const GradientSlab target = HostGradient(unit);
  const size_t element = SizeOf(target.dtype);
  size_t begin = 0, bytes = static_cast<size_t>(model_.layouts[unit].count) * element;
  if (unit == 0) {
    // The tied head makes the token table's gradient alone.
    const TensorLayout& table = *model_.layouts[0].Find(TensorRole::kTokenEmbedding);
    begin = static_cast<size_t>(table.offset) * element;
    bytes = static_cast<size_t>(table.count()) * element;
  }
  device_.CopyToHost(stream(instruction.stream), static_cast<std::byte*>(target.data) + begin,
                     source + begin, bytes);
}

void Executor::Update(int unit, Pass& pass) {
  // Without clipping the update is made as the gradient lands: nothing that is not finite may
  // reach the weights.
  if (!pass.update.valid || !std::isfinite(pass.norm_sum) || !std::isfinite(pass.loss_sum)) return;
  UpdateUnit(state_, unit, HostGradient(unit), pass.update.step, pass.update.factor, pool_);
}

void Executor::EmbedForward(const Schedule& schedule, const Instruction& instruction,
                            const Pass& pass) {
  Stream& on = stream(instruction.stream);
  const TokenBatch& batch = pass.batches[instruction.micro_batch];
  const PassContext context = Context(instruction, pass);
  device_.CopyToDevice(on, const_cast<int32_t*>(context.positions), batch.positions.data(),
                       batch.positions.size() * sizeof(int32_t));
  void* output = Address(schedule, instruction.output);
  void* gathered = plan_.unified ? output : upload_staging_.data();
  const SlabLayout& layout = model_.layouts[0];
  const void* slab = state_.StreamedWeights(0);
  const DType dtype = model_.compute_dtype;
  on.RunOnHost([=, this, &batch, &layout] {
    GatherEmbeddings(
        {.inputs = batch.inputs,
         .positions = batch.positions,
         .hidden = model_.spec.hidden_size,
         .dtype = dtype,
         .token_table = BindTensor(layout, slab, dtype, TensorRole::kTokenEmbedding),
         .position_table = BindTensor(layout, slab, dtype, TensorRole::kPositionEmbedding),
         .y = gathered},
        pool_);
    return absl::OkStatus();
  });
  if (!plan_.unified) {
    device_.CopyToDevice(
        on, output, gathered,
        batch.inputs.size() * static_cast<size_t>(model_.spec.hidden_size) * SizeOf(dtype));
  }
}

void Executor::EmbedBackward(const Schedule& schedule, const Instruction& instruction,
                             const Pass& pass) {
  Stream& on = stream(instruction.stream);
  const TokenBatch& batch = pass.batches[instruction.micro_batch];
  const DType dtype = model_.compute_dtype;
  void* rows = Address(schedule, instruction.input);
  if (!plan_.unified) {
    device_.CopyToHost(
        on, download_staging_.data(), rows,
        batch.inputs.size() * static_cast<size_t>(model_.spec.hidden_size) * SizeOf(dtype));
    rows = download_staging_.data();
  }
  on.RunOnHost([=, this, &batch] {
    const SlabGradient gradient{.data = HostGradient(0).data, .dtype = HostGradient(0).dtype};
    const SlabLayout& layout = model_.layouts[0];
    ScatterEmbeddingGradients(
        {.inputs = batch.inputs,
         .positions = batch.positions,
         .hidden = model_.spec.hidden_size,
         .dtype = dtype,
         .dy = rows,
         .table_dtype = gradient.dtype,
         .token_table = gradient.Of(layout, TensorRole::kTokenEmbedding).data,
         .position_table = gradient.Of(layout, TensorRole::kPositionEmbedding).data},
        pool_);
    return absl::OkStatus();
  });
}

// A tied head overwrites the token table's gradient; only what it does not write is cleared.
void Executor::ClearEmbeddingGradient() {
  const DType dtype = HostGradient(0).dtype;
  for (const TensorLayout& tensor : model_.layouts[0].tensors) {
    if (model_.spec.tied_embeddings && tensor.role == TensorRole::kTokenEmbedding) continue;
    std::byte* data = static_cast<std::byte*>(HostGradient(0).data) +
                      static_cast<size_t>(tensor.offset) * SizeOf(dtype);
    pool_.ParallelFor(tensor.count(), [&](int64_t begin, int64_t end) {
      std::memset(data + static_cast<size_t>(begin) * SizeOf(dtype), 0,
                  static_cast<size_t>(end - begin) * SizeOf(dtype));
    });
  }
}

void Executor::Block(const Schedule& schedule, const Instruction& instruction, const Pass& pass) {
  const PassContext context = Context(instruction, pass);
  const SlabLayout& layout = model_.layouts[instruction.unit];
  const void* weights = Address(schedule, instruction.weights);
  const void* input = Address(schedule, instruction.input);
  void* saved = Address(schedule, instruction.saved);
  void* output = Address(schedule, instruction.output);
  if (instruction.opcode == Opcode::kBlockBackward) {
    BlockBackward(context, layout, weights, input, saved, Address(schedule, instruction.scratch),
                  output, Gradient(schedule, instruction));
  } else {
    BlockForward(context, layout, weights, input, saved, output);
  }
}

void Executor::Head(const Schedule& schedule, const Instruction& instruction, Pass& pass) {
  const PassContext context = Context(instruction, pass);
  const bool tied = model_.spec.tied_embeddings;
  const DType dtype = model_.compute_dtype;
  const SlabLayout& layout = model_.layouts[instruction.unit];
  const void* slab = Address(schedule, instruction.weights);
  const HeadWeights weights{
      .layout = layout,
      .slab = slab,
      .projection = tied
                        ? BindTensor(model_.layouts[0], Address(schedule, instruction.tied_weights),
                                     dtype, TensorRole::kTokenEmbedding)
                        : BindTensor(layout, slab, dtype, TensorRole::kOutputProjection)};
  const void* input = Address(schedule, instruction.input);
  void* scratch = Address(schedule, instruction.scratch);
  if (pass.logits != nullptr) {
    const HeadTile all = {0, model_.spec.vocab_size, weights.projection};
    return HeadLogits(context, weights, all, input, scratch, pass.logits);
  }
  const HeadLoss loss{.targets = pass.batches[instruction.micro_batch].targets.data(),
                      .gradient_scale = pass.gradient_scale,
                      .token_chunk = plan_.shape.token_chunk,
                      .vocab_tile = plan_.shape.vocab_tile,
                      .z_loss = plan_.shape.z_loss,
                      .loss_sum = &pass.loss_sum};
  if (instruction.opcode == Opcode::kHeadEvaluate) {
    return HeadForward(context, weights, loss, input, scratch);
  }
  const SlabGradient gradient = Gradient(schedule, instruction);
  const SlabGradient tied_gradient{.data = Address(schedule, instruction.tied_gradient),
                                   .dtype = model_.gradient_dtypes[0],
                                   .accumulate = gradient.accumulate};
  HeadForwardBackward(
      context, weights, loss, input, scratch, Address(schedule, instruction.output),
      {.slab = gradient,
       .projection = tied ? tied_gradient.Of(model_.layouts[0], TensorRole::kTokenEmbedding)
                          : gradient.Of(layout, TensorRole::kOutputProjection)});
}

}  // namespace millrace
