// Where the input of each pass is: in a place of its own on the device, or, where it waits for
// backward in host memory, in one of a few that are used in turn.
#ifndef MILLRACE_ENGINE_SCHEDULE_LAYER_INPUTS_H_
#define MILLRACE_ENGINE_SCHEDULE_LAYER_INPUTS_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "engine/schedule/step_writer.h"

namespace millrace {

class LayerInputs {
 public:
  // The writer outlives it.
  explicit LayerInputs(StepWriter& writer);

  // Whether the input of a pass waits for backward in host memory.
  bool Offloaded(int64_t pass) const { return b_.host_inputs[pass] != kNone; }
  // Where it is on the device now.
  int At(int64_t pass) const { return at_[pass]; }
  // Memory for the input of a pass that is about to be made; after the last pass, the head's.
  int New(int64_t pass);
  // Takes it to host memory if that is its place; the first block's is there already, where it was
  // gathered.
  void Offload(int64_t pass);
  // The pass that reads it is done.
  void Release(int64_t pass);

  // Backward begins: inputs in host memory will be needed, the last pass's first.
  void PlanFetches();
  // Brings them while there is memory for them.
  void Fetch();

 private:
  int TakeFree();

  StepWriter& w_;
  const StepBuffers& b_;
  std::deque<int> free_;
  std::deque<int64_t> to_fetch_;
  std::vector<int> at_;  // by pass
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_SCHEDULE_LAYER_INPUTS_H_
