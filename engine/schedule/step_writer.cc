#include "engine/schedule/step_writer.h"

namespace millrace {

StepWriter::StepWriter(const ScheduledModel& model, const Plan& plan, const PassShape& passes,
                       bool training, bool pending_update)
    : model_(model),
      plan_(plan),
      passes_(passes),
      buffers_(StepBuffers::Make(model, plan, passes, training, emitter_)),
      update_pending_(model.layouts.size(),
                      pending_update && plan.update_time == UpdateTime::kBeforeNextUpload) {}

Access StepWriter::Part(int buffer, bool write, int64_t begin, int64_t count, DType dtype) const {
  // What is bound takes no memory.
  if (emitter_.buffer(buffer).bytes == 0) return {buffer, write, 0};
  return {buffer, write, ElementBytes(count, dtype), ElementBytes(begin, dtype)};
}

void StepWriter::ReadWeights(std::vector<Access>& accesses, int slot, int unit,
                             int64_t count) const {
  accesses.push_back(Part(slot, false, 0, count, model_.compute_dtype));
  if (plan_.unified) accesses.push_back(Read(buffers_.host_weights[unit]));
}

void StepWriter::AddGradient(std::vector<Access>& accesses, int buffer, int64_t begin,
                             int64_t count, DType dtype, bool first) const {
  accesses.push_back(Part(buffer, true, begin, count, dtype));
  if (!first) accesses.push_back(Part(buffer, false, begin, count, dtype));
}

void StepWriter::Upload(int unit, int slot, int64_t begin, int64_t count) {
  const bool tile = emitter_.buffer(slot).kind == BufferKind::kTileSlot;
  Emit({.opcode = Opcode::kUpload,
        .stream = StreamId::kUpload,
        .unit = unit,
        .begin = begin,
        .count = count,
        .weights = slot},
       {Read(buffers_.host_weights[unit]),
        Part(slot, true, tile ? 0 : begin, count > 0 ? count : Count(unit), model_.compute_dtype)});
}

void StepWriter::UpdatePending(int unit) {
  if (!update_pending_[unit]) return;
  update_pending_[unit] = false;
  Update(unit);
}

void StepWriter::Update(int unit) {
  Emit({.opcode = Opcode::kUpdate,
        .stream = StreamId::kHost,
        .unit = unit,
        .input = buffers_.host_gradients[unit]},
       {Read(buffers_.host_gradients[unit]), Read(buffers_.norm), Read(buffers_.loss),
        Write(buffers_.host_weights[unit])});
}

bool StepWriter::Convert(int unit) const {
  return AccumulatorDType(model_, shape(), unit) != model_.gradient_dtypes[unit];
}

Access StepWriter::PartOf(const Landing& landing, int buffer, bool write, DType dtype) const {
  const bool on_host = SpaceOf(emitter_.buffer(buffer).kind) == MemorySpace::kHost;
  return Part(buffer, write, landing.range_only && !on_host ? 0 : landing.begin, landing.count,
              dtype);
}

void StepWriter::ConvertGradient(const Landing& landing) {
  const int unit = landing.unit;
  if (!Convert(unit)) return;
  const int target = plan_.unified ? buffers_.host_gradients[unit] : landing.converted;
  Emit({.opcode = Opcode::kConvertGradient,
        .stream = StreamId::kCompute,
        .unit = unit,
        .begin = landing.begin,
        .count = landing.count,
        .input = landing.made,
        .output = target,
        .range_only = landing.range_only},
       {PartOf(landing, landing.made, false, DType::kF32),
        PartOf(landing, target, true, model_.gradient_dtypes[unit])});
}

void StepWriter::DownloadGradient(const Landing& landing) {
  if (plan_.unified) return;
  const int unit = landing.unit;
  const int source = Convert(unit) ? landing.converted : landing.made;
  const DType dtype = model_.gradient_dtypes[unit];
  Emit({.opcode = Opcode::kDownloadGradient,
        .stream = StreamId::kDownload,
        .unit = unit,
        .begin = landing.begin,
        .count = landing.count,
        .input = source,
        .output = buffers_.host_gradients[unit],
        .range_only = landing.range_only},
       {PartOf(landing, source, false, dtype),
        PartOf(landing, buffers_.host_gradients[unit], true, dtype)});
}

void StepWriter::Land(const Landing& landing) {
  ConvertGradient(landing);
  DownloadGradient(landing);
}

void StepWriter::GradientLanded(int unit) {
  const int gradient = buffers_.host_gradients[unit];
  Emit(
      {.opcode = Opcode::kGradientNorm, .stream = StreamId::kHost, .unit = unit, .input = gradient},
      {Read(gradient), Write(gradient), Read(buffers_.norm), Write(buffers_.norm)});
  if (plan_.update_time == UpdateTime::kAsGradientLands) Update(unit);
}

}  // namespace millrace
