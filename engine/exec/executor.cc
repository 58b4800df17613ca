#include "engine/exec/executor.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/base/status_macros.h"
#include "engine/model/rotary_tables.h"
#include "engine/ops/embedding.h"
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
                   ThreadPool* host_pool, HostState* state, const std::atomic<bool>* cancelled)
    : model_(model),
      plan_(plan),
      device_(*device),
      ops_(*ops),
      host_pool_(*host_pool),
      state_(*state),
      cancelled_(cancelled),
      device_arena_("device", device->memory(), device->memory_bytes()) {
  for (int s = 0; s < kNumStreams; ++s) {
    streams_[s] = device_.CreateStream(NameOf(static_cast<StreamId>(s)));
  }
}

absl::Status Executor::Prepare(absl::Span<const Schedule* const> schedules) {
  size_t host_bytes = 0;
  for (const Schedule* schedule : schedules) {
    host_bytes = std::max(host_bytes, schedule->host_bytes);
  }
  MILLRACE_ASSIGN_OR_RETURN(host_memory_,
                            AlignedBuffer::Allocate(host_bytes, "gradients and layer inputs"));
  host_arena_.emplace("host", host_memory_.data(), host_memory_.size());

  if (RotaryTables(model_.spec) == 0) return absl::OkStatus();
  const int64_t positions = plan_.shape.longest_document;
  rotary_tables_.resize(RotaryTableBytes(model_.spec, plan_.shape) / sizeof(float));
  FillRotaryTables(model_.spec, positions, positions, rotary_tables_.data());
  const Buffer& buffer = schedules.front()->buffers.front();
  MILLRACE_ASSIGN_OR_RETURN(std::byte* const table,
                            device_arena_.Place(buffer.offset, buffer.bytes, NameOf(buffer.kind)));
  device_rotary_tables_ = reinterpret_cast<const float*>(table);
  device_.CopyToDevice(stream(StreamId::kCompute), table, rotary_tables_.data(), buffer.bytes);
  return stream(StreamId::kCompute).Synchronize();
}

absl::Status Executor::Run(const Schedule& schedule, Pass& pass) {
  addresses_.assign(schedule.buffers.size(), nullptr);
  pass.norm_sums.assign(model_.layouts.size(), 0.0);
  const std::vector<bool> waited = WaitedFor(schedule);
  while (events_.size() < schedule.instructions.size()) events_.push_back(device_.CreateEvent());

  if (pass.recorder != nullptr) pass.recorder->Begin(schedule);
  absl::Status status;
  for (size_t i = 0; i < schedule.instructions.size(); ++i) {
    const Instruction& instruction = schedule.instructions[i];
    status = CheckCancelled();
    if (status.ok()) status = Place(schedule, instruction);
    if (!status.ok()) break;
    Stream& on = stream(instruction.stream);
    for (int wait : instruction.waits) on.Wait(*events_[wait]);
    // All of a step may be in the queues long before it is done.
    if (cancelled_ != nullptr) on.RunOnHost([this] { return CheckCancelled(); });
    if (pass.recorder != nullptr) pass.recorder->Start(on, static_cast<int>(i));
    Issue(schedule, instruction, pass);
    if (pass.recorder != nullptr) pass.recorder->End(on, static_cast<int>(i));
    if (waited[i]) on.Record(*events_[i]);
  }
  // Also after an error: what is in flight reads `pass`.
  for (std::unique_ptr<Stream>& stream : streams_) status.Update(stream->Synchronize());
  return status;
}

absl::Status Executor::CheckCancelled() const {
  return cancelled_ != nullptr && cancelled_->load(std::memory_order_acquire)
             ? absl::CancelledError("cancelled")
             : absl::OkStatus();
}

absl::Status Executor::Place(const Schedule& schedule, const Instruction& instruction) {
  for (const Access& access : instruction.accesses) {
    const Buffer& buffer = schedule.buffers[access.buffer];
    if (addresses_[access.buffer] != nullptr || buffer.bytes == 0) continue;
    Arena& arena = SpaceOf(buffer.kind) == MemorySpace::kDevice ? device_arena_ : *host_arena_;
    MILLRACE_ASSIGN_OR_RETURN(addresses_[access.buffer],
                              arena.Place(buffer.offset, buffer.bytes, NameOf(buffer.kind)));
    if (buffer.kind == BufferKind::kOpsWorkspace) {
      ops_.SetWorkspace(addresses_[access.buffer], buffer.bytes);
    }
  }
  return absl::OkStatus();
}

GradientSlab Executor::HostGradient(const Schedule& schedule, int unit) {
  for (const Instruction& instruction : schedule.instructions) {
    if (instruction.opcode != Opcode::kGradientNorm || instruction.unit != unit) continue;
    return {host_memory_.data() + schedule.buffers[instruction.input].offset,
            model_.gradient_dtypes[unit]};
  }
  return {};
}

PassContext Executor::Context(const Instruction& instruction, const Pass& pass) {
  const TokenBatch& batch = pass.batches[instruction.micro_batch];
  return {.spec = model_.spec,
          .ops = ops_,
          .stream = stream(instruction.stream),
          .tokens = static_cast<int64_t>(batch.inputs.size()),
          .boundaries = batch.boundaries,
          .positions = reinterpret_cast<const int32_t*>(Address(instruction.positions)),
          .rotary_table = device_rotary_tables_,
          .window_rotary_table =
              RotaryTables(model_.spec) > 1
                  ? device_rotary_tables_ +
                        RotaryTableElements(model_.spec, plan_.shape.longest_document)
                  : nullptr};
}

size_t Executor::RowBytes(const TokenBatch& batch) const {
  return ElementBytes(static_cast<int64_t>(batch.inputs.size()) * model_.spec.hidden_size,
                      model_.compute_dtype);
}

std::byte* Executor::GradientAt(const Schedule& schedule, const Instruction& instruction,
                                int buffer, DType dtype) const {
  const bool on_host = SpaceOf(schedule.buffers[buffer].kind) == MemorySpace::kHost;
  const int64_t begin = instruction.range_only && !on_host ? 0 : instruction.begin;
  return Address(buffer) + ElementBytes(begin, dtype);
}

SlabGradient Executor::MadeGradient(const Instruction& instruction) const {
  return {.data = Address(instruction.gradient),
          .dtype = AccumulatorDType(model_, plan_.shape, instruction.unit),
          .accumulate = !instruction.first_gradient};
}

void Executor::Issue(const Schedule& schedule, const Instruction& instruction, Pass& pass) {
  const int unit = instruction.unit;
  Stream& on = stream(instruction.stream);
  std::byte* const input = Address(instruction.input);
  std::byte* const output = Address(instruction.output);
  switch (instruction.opcode) {
    case Opcode::kUpload:
      return Upload(schedule, instruction);
    case Opcode::kUploadRows:
      return UploadRows(instruction, pass);
    case Opcode::kFetchInput:
      return device_.CopyToDevice(on, output, input, schedule.buffers[instruction.output].bytes);
    case Opcode::kOffloadInput:
      return device_.CopyToHost(on, output, input, schedule.buffers[instruction.output].bytes);
    case Opcode::kFetchAccumulator:
      return device_.CopyToDevice(
          on, output, input,
          ElementBytes(model_.layouts[unit].count, AccumulatorDType(model_, plan_.shape, unit)));
    case Opcode::kOffloadAccumulator:
      return device_.CopyToHost(
          on, output, input,
          ElementBytes(model_.layouts[unit].count, AccumulatorDType(model_, plan_.shape, unit)));
    case Opcode::kBlockForward:
    case Opcode::kBlockRecompute:
    case Opcode::kBlockRemake:
    case Opcode::kBlockBackward:
      return Block(instruction, pass);
    case Opcode::kHead:
    case Opcode::kHeadEvaluate:
      return Head(instruction, pass);
    case Opcode::kHeadStatistics:
    case Opcode::kHeadTileGradient:
    case Opcode::kHeadInputGradient:
      return HeadTiles(schedule, instruction, pass);
    case Opcode::kConvertGradient:
      return ConvertToKept(schedule, instruction);
    case Opcode::kDownloadGradient:
      return DownloadGradient(schedule, instruction);
    case Opcode::kDownloadRows:
      return device_.CopyToHost(on, output, input, RowBytes(pass.batches[instruction.micro_batch]));
    case Opcode::kUpdate:
      return on.RunOnHost([this, unit, input, &pass] {
        Update(unit, {input, model_.gradient_dtypes[unit]}, pass);
        return absl::OkStatus();
      });
    case Opcode::kEmbedGather:
      return EmbedGather(instruction, pass);
    case Opcode::kClearEmbeddingGradient:
      return on.RunOnHost([this, output] {
        ClearEmbeddingGradient(output);
        return absl::OkStatus();
      });
    case Opcode::kEmbedScatter:
      return EmbedScatter(instruction, pass);
    case Opcode::kGradientNorm:
      return on.RunOnHost([this, unit, input, &pass] {
        const GradientSlab gradient{input, model_.gradient_dtypes[unit]};
        ClearGradientPadding(model_.layouts[unit], gradient);
        pass.norm_sums[unit] = GradientSumOfSquares(model_.layouts[unit], gradient, host_pool_);
        return absl::OkStatus();
      });
  }
}

// --- Transfers ----------------------------------------------------------------------------------

void Executor::Upload(const Schedule& schedule, const Instruction& instruction) {
  const int unit = instruction.unit;
  const DType dtype = model_.compute_dtype;
  const size_t begin = ElementBytes(instruction.begin, dtype);
  if (plan_.unified) {
    addresses_[instruction.weights] = static_cast<std::byte*>(state_.weights(unit)) + begin;
    return;
  }
  const bool whole = instruction.count == 0;
  const bool tile = schedule.buffers[instruction.weights].kind == BufferKind::kTileSlot;
  device_.CopyToDevice(stream(instruction.stream),
                       Address(instruction.weights) + (tile ? 0 : begin),
                       static_cast<const std::byte*>(state_.StreamedWeights(unit)) + begin,
                       whole ? state_.StreamedBytes(unit) : ElementBytes(instruction.count, dtype));
}

void Executor::UploadRows(const Instruction& instruction, const Pass& pass) {
  Stream& on = stream(instruction.stream);
  const TokenBatch& batch = pass.batches[instruction.micro_batch];
  device_.CopyToDevice(on, Address(instruction.positions), batch.positions.data(),
                       batch.positions.size() * sizeof(int32_t));
  device_.CopyToDevice(on, Address(instruction.output), Address(instruction.input),
                       RowBytes(batch));
}

void Executor::ConvertToKept(const Schedule& schedule, const Instruction& instruction) {
  const DType kept = model_.gradient_dtypes[instruction.unit];
  ops_.Run(stream(instruction.stream),
           ConvertGradient{.count = instruction.count,
                           .source = reinterpret_cast<const float*>(
                               GradientAt(schedule, instruction, instruction.input, DType::kF32)),
                           .target = GradientAt(schedule, instruction, instruction.output, kept),
                           .target_dtype = kept});
}

void Executor::DownloadGradient(const Schedule& schedule, const Instruction& instruction) {
  const DType dtype = model_.gradient_dtypes[instruction.unit];
  device_.CopyToHost(stream(instruction.stream),
                     GradientAt(schedule, instruction, instruction.output, dtype),
                     GradientAt(schedule, instruction, instruction.input, dtype),
                     ElementBytes(instruction.count, dtype));
}

// --- Host ---------------------------------------------------------------------------------------

void Executor::Update(int unit, const GradientSlab& gradient, Pass& pass) {
  // Without clipping the update is made as the gradient lands: nothing that is not finite may
  // reach the weights.
  if (!pass.update.valid || !std::isfinite(pass.norm_sum()) || !std::isfinite(pass.loss_sum))
    return;
  UpdateUnit(state_, unit, gradient, pass.update.step, pass.update.factor, host_pool_);
}

void Executor::EmbedGather(const Instruction& instruction, const Pass& pass) {
  Stream& on = stream(instruction.stream);
  const TokenBatch& batch = pass.batches[instruction.micro_batch];
  if (instruction.positions != kNone) {
    device_.CopyToDevice(on, Address(instruction.positions), batch.positions.data(),
                         batch.positions.size() * sizeof(int32_t));
  }
  void* const rows = Address(instruction.output);
  on.RunOnHost([this, rows, &batch] {
    const SlabLayout& layout = model_.layouts[0];
    const void* slab = state_.StreamedWeights(0);
    const DType dtype = model_.compute_dtype;
    return GatherEmbeddings(
        {.inputs = batch.inputs,
         .positions = batch.positions,
         .hidden = model_.spec.hidden_size,
         .vocab = model_.spec.vocab_size,
         .max_positions = model_.spec.max_positions,
         .dtype = dtype,
         .scale = model_.spec.embedding_scale,
         .token_table = BindTensor(layout, slab, dtype, TensorRole::kTokenEmbedding),
         .position_table = BindTensor(layout, slab, dtype, TensorRole::kPositionEmbedding),
         .y = rows},
        host_pool_);
  });
}

void Executor::EmbedScatter(const Instruction& instruction, const Pass& pass) {
  const TokenBatch& batch = pass.batches[instruction.micro_batch];
  const void* const rows = Address(instruction.input);
  const SlabGradient gradient{.data = Address(instruction.gradient),
                              .dtype = model_.gradient_dtypes[0]};
  stream(instruction.stream).RunOnHost([this, rows, gradient, &batch] {
    const SlabLayout& layout = model_.layouts[0];
    ScatterEmbeddingGradients(
        {.inputs = batch.inputs,
         .positions = batch.positions,
         .hidden = model_.spec.hidden_size,
         .dtype = model_.compute_dtype,
         .scale = model_.spec.embedding_scale,
         .dy = rows,
         .table_dtype = gradient.dtype,
         .token_table = gradient.Of(layout, TensorRole::kTokenEmbedding).data,
         .position_table = gradient.Of(layout, TensorRole::kPositionEmbedding).data},
        host_pool_);
    return absl::OkStatus();
  });
}

// A tied head overwrites the token table's gradient; only what it does not write is cleared.
void Executor::ClearEmbeddingGradient(void* gradient) {
  const DType dtype = model_.gradient_dtypes[0];
  for (const TensorLayout& tensor : model_.layouts[0].tensors) {
    if (model_.spec.tied_embeddings && tensor.role == TensorRole::kTokenEmbedding) continue;
    std::byte* data = static_cast<std::byte*>(gradient) + ElementBytes(tensor.offset, dtype);
    host_pool_.ParallelFor(tensor.count(), [&](int64_t begin, int64_t end) {
      std::memset(data + ElementBytes(begin, dtype), 0, ElementBytes(end - begin, dtype));
    });
  }
}

}  // namespace millrace
