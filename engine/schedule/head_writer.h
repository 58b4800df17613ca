// The head's part of a step: its weights' way up, the loss and its gradients, and their way down.
//
// Whole weights are as large as many blocks: up and down they go in ranges between the blocks', so
// that none waits behind them. In tiles, everything happens between forward and backward.
#ifndef MILLRACE_ENGINE_SCHEDULE_HEAD_WRITER_H_
#define MILLRACE_ENGINE_SCHEDULE_HEAD_WRITER_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/schedule/step_writer.h"

namespace millrace {

class HeadWriter {
 public:
  // The writer outlives it.
  explicit HeadWriter(StepWriter& writer) : w_(writer), b_(writer.buffers()) {}

  // What of whole weights comes up after block `unit` of the (first) forward pass: over the second
  // half of the blocks.
  void UploadRange(int unit);
  // Loss and gradients of one micro-batch, with whole weights.
  void Whole(int64_t micro_batch, int64_t local);
  // That was the last: the gradient is complete on the device.
  void WholeDone();
  // What of it goes down after block `unit` of the last backward pass: over the first ones.
  void DownloadRange(int unit);

  // Loss and gradients of all micro-batches, with weights in tiles. Layer-major alone: every tile
  // meets all micro-batches of the step.
  void Tiles();

  // Loss, or logits, of what the last block gave.
  void Evaluate(int input);

 private:
  int Gradient() const {
    return b_.head_accumulator == kNone ? b_.host_gradients[w_.head()] : b_.head_accumulator;
  }
  int TiedGradient() const {
    return w_.plan().unified ? b_.host_gradients[0] : b_.tied_accumulator;
  }
  int projection_unit() const { return w_.tied() ? 0 : w_.head(); }
  // Elements of its slab before the projection's.
  int64_t ProjectionOffset() const;
  StepWriter::Landing WholeLanding() const;

  // Calls `function` for each tile with its weights' slot.
  void ForEachTile(const std::function<void(int64_t first, int64_t count, int slot)>& function);
  // The head's norm, and a tile of its weights.
  void ReadTile(std::vector<Access>& accesses, int slot, int64_t count) const;
  void TileStatistics(int64_t micro_batch, int64_t local, int input, int64_t first, int64_t count,
                      int slot);
  void TileGradient(int64_t micro_batch, int gradient, int64_t first, int64_t count, int slot);
  void InputGradient(int64_t micro_batch);

  StepWriter& w_;
  const StepBuffers& b_;
  int64_t tiles_ = 0;
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_SCHEDULE_HEAD_WRITER_H_
