// The buffers of a schedule: which there are for a plan, and how large.
#ifndef MILLRACE_ENGINE_SCHEDULE_STEP_BUFFERS_H_
#define MILLRACE_ENGINE_SCHEDULE_STEP_BUFFERS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/schedule/emitter.h"
#include "engine/schedule/plan.h"
#include "engine/schedule/schedule.h"

namespace millrace {

// How passes are numbered: a group of micro-batches goes through all units before the next group
// does. Layer-major has one group of all, batch-major one group a micro-batch.
struct PassShape {
  int64_t groups = 1;
  int64_t group = 1;  // micro-batches of a group
  int64_t blocks = 1;

  int64_t passes() const { return group * blocks; }  // of a group
  // Of the block `unit` (from 1) for the group's micro-batch `local`.
  int64_t Index(int unit, int64_t local) const { return (unit - 1) * group + local; }
};

enum class KeepLevel : uint8_t { kRecompute, kSelective, kKeep };

// Buffer indices. Vectors are empty where a plan has no such buffers.
struct StepBuffers {
  // Training with `shape`, or the forward pass of one micro-batch alone.
  static StepBuffers Make(const ScheduledModel& model, const Plan& plan, const PassShape& passes,
                          bool training, Emitter& emitter);

  int rotary_table = kNone;
  std::vector<int> host_weights;    // one a unit
  std::vector<int> host_gradients;  // one a unit; units may share one
  std::vector<int> host_accumulators;
  int loss = kNone, norm = kNone;

  std::vector<int> slots;  // of blocks: shared ones, then resident ones
  int head_slot = kNone, tied_slot = kNone;
  std::vector<int> tile_slots;

  std::vector<int> positions;    // one a micro-batch of a group
  std::vector<int> inputs;       // by pass; kNone where it is offloaded
  std::vector<int> head_inputs;  // by micro-batch of a group
  std::vector<int> input_ring;   // for passes whose input is offloaded
  std::vector<int> host_inputs;  // by pass, where it is offloaded
  std::vector<int> staging_up, staging_down;
  std::vector<int> residual_gradients;

  std::vector<int> saved;  // by pass; kNone where it is made again
  int shared_saved = kNone, remade = kNone;
  int block_scratch = kNone, head_scratch = kNone, workspace = kNone;
  std::vector<int> head_statistics, hidden_gradients;

  std::vector<int> accumulators, converted;  // used in turn
  int head_accumulator = kNone, head_converted = kNone, tied_accumulator = kNone;
  std::vector<int> tile_accumulators, tile_converted;
};

KeepLevel KeepOf(const Plan& plan, const PassShape& passes, int64_t pass);

// The passes of a plan.
PassShape PassesOf(const ScheduledModel& model, const Plan& plan);

// The head is brought and computed a tile of the vocabulary at a time.
bool TiledHead(const Plan& plan);

// Elements of the head's slab before its projection: the final norm.
int64_t HeadTileOffset(const ScheduledModel& model);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_SCHEDULE_STEP_BUFFERS_H_
