#include "engine/schedule/layer_inputs.h"

#include <utility>

namespace millrace {

LayerInputs::LayerInputs(StepWriter& writer)
    : w_(writer),
      b_(writer.buffers()),
      free_(b_.input_ring.begin(), b_.input_ring.end()),
      at_(b_.inputs) {}

int LayerInputs::New(int64_t pass) {
  const int64_t passes = w_.passes().passes();
  if (pass >= passes) return b_.head_inputs[pass - passes];
  if (Offloaded(pass)) at_[pass] = TakeFree();
  return at_[pass];
}

int LayerInputs::TakeFree() {
  const int buffer = free_.front();
  free_.pop_front();
  return buffer;
}

void LayerInputs::Release(int64_t pass) {
  if (Offloaded(pass)) free_.push_back(std::exchange(at_[pass], kNone));
}

void LayerInputs::Offload(int64_t pass) {
  const PassShape& passes = w_.passes();
  if (pass < passes.group || pass >= passes.passes() || !Offloaded(pass)) return;
  w_.Emit({.opcode = Opcode::kOffloadInput,
           .stream = StreamId::kDownload,
           .unit = static_cast<int>(pass / passes.group) + 1,
           .input = at_[pass],
           .output = b_.host_inputs[pass]},
          {w_.Read(at_[pass]), w_.Write(b_.host_inputs[pass])});
}

void LayerInputs::PlanFetches() {
  for (int64_t pass = w_.passes().passes() - 1; pass >= 0; --pass) {
    if (Offloaded(pass)) to_fetch_.push_back(pass);
  }
}

void LayerInputs::Fetch() {
  while (!to_fetch_.empty() && !free_.empty()) {
    const int64_t pass = to_fetch_.front();
    to_fetch_.pop_front();
    at_[pass] = TakeFree();
    w_.Emit({.opcode = Opcode::kFetchInput,
             .stream = StreamId::kUpload,
             .unit = static_cast<int>(pass / w_.passes().group) + 1,
             .input = b_.host_inputs[pass],
             .output = at_[pass]},
            {w_.Read(b_.host_inputs[pass]), w_.Write(at_[pass])});
  }
}

}  // namespace millrace
