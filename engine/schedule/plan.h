// What a job fixes about a step, and what a planner chooses.
#ifndef MILLRACE_ENGINE_SCHEDULE_PLAN_H_
#define MILLRACE_ENGINE_SCHEDULE_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
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
  int64_t vocab_tile = 0;        // of the head: classes whose logits exist at one time; 0: all
  double z_loss = 0;             // factor of (log Σ exp logits)² in a token's loss
  bool clip = true;              // by the global gradient norm
};

enum class UpdateTime : uint8_t {
  kAsGradientLands,   // no clipping: during the backward pass
  kBeforeNextUpload,  // clipping: once the norm is known, just ahead of the next step's upload
};

enum class Order : uint8_t {
  kLayerMajor,  // all micro-batches pass through a unit before the next unit is needed
  kBatchMajor,  // one micro-batch passes through all units, forward and backward, before the next
};

enum class HeadPlacement : uint8_t {
  kWhole,
  kTiled,  // a tile of the vocabulary at a time (shape.vocab_tile)
};

enum class Activations : uint8_t { kRecompute, kSelective, kKeep };

// What a job fixes of its plan; the planner chooses the rest.
struct PlanChoices {
  std::optional<Order> order;
  std::optional<int64_t> weight_slots, resident_units;
  std::optional<Activations> activations;
  std::optional<bool> inputs_on_host;  // where layer inputs wait for backward
  std::optional<HeadPlacement> head;
};

// Bytes of memory for one purpose: "slots", "activations", "gradients", "workspace".
struct MemoryItem {
  std::string purpose;
  size_t bytes = 0;
};

// How a step runs. Any two plans of one shape give bitwise the same losses and weights.
//
// A *pass* is one micro-batch through one block. Passes are counted in the order of forward (in
// batch-major order: of one micro-batch).
struct Plan {
  StepShape shape;
  // Uploads bind host memory and copy nothing; weight slots and landing buffers take no memory.
  bool unified = true;
  Order order = Order::kLayerMajor;
  // Blocks whose weights are on the device at a time, besides the resident ones; with one alone
  // nothing is brought ahead.
  int weight_slots = 2;
  // Blocks, evenly spread, whose weights stay on the device from forward to backward.
  int resident_units = 0;
  // Whether blocks that are still in their slots at the end of forward serve backward.
  bool reuse_at_turn = true;
  // The last passes of forward keep all activations of their block; those before them the selected
  // ones, from which a few element-wise passes make the rest again; the others nothing but the
  // layer's input.
  int64_t kept_passes = 0;
  int64_t selective_passes = 0;
  // The first passes of forward whose layer inputs wait for backward in host memory.
  int64_t offloaded_passes = 0;
  HeadPlacement head = HeadPlacement::kWhole;
  UpdateTime update_time = UpdateTime::kBeforeNextUpload;

  // Set by the planner from the schedule.
  size_t device_bytes = 0;  // in all
  size_t host_bytes = 0;    // gradients, offloaded inputs, staging; not HostState
  std::vector<MemoryItem> memory, host_memory;
};

// The model as the schedule sees it. `layouts` are its slabs, `gradient_dtypes` how the
// host keeps each unit's gradient.
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

// Bytes of the tables of cosines and sines (model/rotary_tables.h) for documents of shape's
// longest; 0 without rotary embedding.
size_t RotaryTableBytes(const ModelSpec& spec, const StepShape& shape);

// Type in which a unit's gradient is made on the device: f32 wherever several sums are added up
// (micro-batches, chunks of the head), else as the host keeps it.
DType AccumulatorDType(const ScheduledModel& model, const StepShape& shape, int unit);

// INVALID_ARGUMENT, naming the choice and its value, for a plan that there is no schedule of.
absl::Status CheckPlan(const ScheduledModel& model, const Plan& plan);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_SCHEDULE_PLAN_H_
