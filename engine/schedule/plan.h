// What a job fixes about a step, and what a planner chooses.
#ifndef MILLRACE_ENGINE_SCHEDULE_PLAN_H_
#define MILLRACE_ENGINE_SCHEDULE_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/model/model_spec.h"
#include "engine/model/slab_layout.h"

namespace millrace {

// What the numbers depend on: chosen once, recorded with the job, never changed by a plan.
struct StepShape {
  int64_t micro_batches = 1;  // a step
  int64_t tokens_per_micro_batch = 0;
  int64_t longest_document = 0;  // tokens; the sequence length
  int64_t token_chunk = 0;       // of the head: tokens whose logits exist at one time
  bool clip = true;              // by the global gradient norm
};

enum class UpdateTime : uint8_t {
  kAsGradientLands,   // no clipping: during the backward pass
  kBeforeNextUpload,  // clipping: once the norm is known, just ahead of the next step's upload
};

// Bytes of device memory for one purpose: "weights", "activations", "gradients", "workspace".
struct MemoryItem {
  std::string purpose;
  size_t bytes = 0;
};

// How a step runs. Any two plans of one shape give bitwise the same losses and weights.
struct Plan {
  StepShape shape;
  // Uploads bind host memory and copy nothing; weight slots and landing buffers take no memory.
  bool unified = true;
  int weight_slots = 2;
  // Block activations that can be kept at a time, between 1 and layers · micro-batches. The last
  // that forward makes are kept for backward; the others are made again from the layer's input.
  int64_t activation_slots = 1;
  UpdateTime update_time = UpdateTime::kBeforeNextUpload;

  size_t device_bytes = 0;  // in all
  std::vector<MemoryItem> memory;
};

// The model as the schedule sees it. `layouts` are its slabs, `gradient_dtypes` how HostState keeps
// each unit's gradient.
struct ScheduledModel {
  ModelSpec spec;
  std::vector<SlabLayout> layouts;
  std::vector<DType> gradient_dtypes;
  DType compute_dtype = DType::kF32;
  // Scratch that the ops need for the shape (Ops::WorkspaceBytes).
  size_t ops_workspace_bytes = 0;

  int head() const { return static_cast<int>(layouts.size()) - 1; }
  int64_t num_blocks() const { return spec.num_layers; }
};

// Bytes of the table of cosines and sines, [longest_document, head_dim/2, 2] f32; 0 without rotary
// embedding.
size_t RotaryTableBytes(const ModelSpec& spec, const StepShape& shape);

// Type in which a unit's gradient is made on the device: f32 wherever several sums are added up
// (micro-batches, chunks of the head), else as the host keeps it.
DType AccumulatorDType(const ScheduledModel& model, const StepShape& shape, int unit);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_SCHEDULE_PLAN_H_
