// The executor's compute stream: blocks and the head.
#include "engine/exec/executor.h"

namespace millrace {

void Executor::Block(const Instruction& instruction, const Pass& pass) {
  const PassContext context = Context(instruction, pass);
  const SlabLayout& layout = model_.layouts[instruction.unit];
  const void* weights = Address(instruction.weights);
  const void* input = Address(instruction.input);
  void* output = Address(instruction.output);
  std::byte* saved = Address(instruction.saved);
  void* remade = instruction.remade != kNone
                     ? Address(instruction.remade)
                     : saved + BlockSavedBytes(model_.spec, plan_.shape.tokens_per_micro_batch,
                                               model_.compute_dtype);
  switch (instruction.opcode) {
    case Opcode::kBlockBackward:
      return BlockBackward(context, layout, weights, input, saved, remade,
                           Address(instruction.scratch), output, MadeGradient(instruction));
    case Opcode::kBlockRemake:
      return BlockRemake(context, layout, weights, input, saved, remade);
    default:
      return BlockForward(context, layout, weights, input, saved, remade, output);
  }
}

HeadLoss Executor::LossOf(const Instruction& instruction, Pass& pass) const {
  return {.targets = pass.batches[instruction.micro_batch].targets.data(),
          .gradient_scale = pass.gradient_scale,
          .token_chunk = plan_.shape.token_chunk,
          .vocab_tile = plan_.shape.vocab_tile,
          .z_loss = plan_.shape.z_loss,
          .loss_sum = &pass.loss_sum};
}

void Executor::Head(const Instruction& instruction, Pass& pass) {
  const PassContext context = Context(instruction, pass);
  const bool tied = model_.spec.tied_embeddings;
  const DType dtype = model_.compute_dtype;
  const SlabLayout& layout = model_.layouts[instruction.unit];
  const void* slab = Address(instruction.weights);
  const HeadWeights weights{
      .layout = layout,
      .slab = slab,
      .projection = tied ? BindTensor(model_.layouts[0], Address(instruction.tied_weights), dtype,
                                      TensorRole::kTokenEmbedding)
                         : BindTensor(layout, slab, dtype, TensorRole::kOutputProjection)};
  const void* input = Address(instruction.input);
  void* scratch = Address(instruction.scratch);
  if (pass.logits != nullptr) {
    return HeadLogits(context, weights, {0, model_.spec.vocab_size, weights.projection}, input,
                      context.tokens - 1, 1, scratch, pass.logits);
  }
  const HeadLoss loss = LossOf(instruction, pass);
  if (instruction.opcode == Opcode::kHeadEvaluate) {
    return HeadForward(context, weights, loss, input, scratch);
  }
  const SlabGradient gradient = MadeGradient(instruction);
  const SlabGradient tied_gradient{.data = Address(instruction.tied_gradient),
                                   .dtype = model_.gradient_dtypes[0],
                                   .accumulate = gradient.accumulate};
  HeadForwardBackward(
      context, weights, loss, input, scratch, Address(instruction.output),
      {.slab = gradient,
       .projection = tied ? tied_gradient.Of(model_.layouts[0], TensorRole::kTokenEmbedding)
                          : gradient.Of(layout, TensorRole::kOutputProjection)});
}

void Executor::HeadTiles(const Schedule& schedule, const Instruction& instruction, Pass& pass) {
  const PassContext context = Context(instruction, pass);
  const HeadWeights weights{.layout = model_.layouts[instruction.unit],
                            .slab = Address(instruction.weights)};
  const HeadTile tile{instruction.begin, instruction.count, Address(instruction.tied_weights)};
  const HeadLoss loss = LossOf(instruction, pass);
  const void* input = Address(instruction.input);
  std::byte* const output = Address(instruction.output);
  void* scratch = Address(instruction.scratch);
  switch (instruction.opcode) {
    case Opcode::kHeadStatistics:
      if (pass.logits != nullptr) {
        return HeadLogits(context, weights, tile, input, context.tokens - 1, 1, scratch,
                          pass.logits);
      }
      return HeadStatistics(context, weights, tile, loss, input, scratch, output);
    case Opcode::kHeadTileGradient: {
      const bool tied = model_.spec.tied_embeddings;
      GradientTarget target =
          MadeGradient(instruction)
              .Of(model_.layouts[instruction.unit], TensorRole::kOutputProjection);
      if (tied) target = {.dtype = model_.gradient_dtypes[0]};
      target.accumulate = !instruction.first_gradient;
      target.data = Address(instruction.gradient);
      if (SpaceOf(schedule.buffers[instruction.gradient].kind) == MemorySpace::kHost) {
        // The host's own slab.
        const int unit = tied ? 0 : instruction.unit;
        const TensorLayout& table = *model_.layouts[unit].Find(
            tied ? TensorRole::kTokenEmbedding : TensorRole::kOutputProjection);
        target.data =
            Address(instruction.gradient) +
            ElementBytes(table.offset + tile.first * model_.spec.hidden_size, target.dtype);
      }
      return HeadTileGradient(context, weights, tile, loss, input, scratch,
                              Address(instruction.saved), reinterpret_cast<float*>(output), target);
    }
    default:
      return HeadFinish(context, weights, loss, input, scratch,
                        reinterpret_cast<const float*>(Address(instruction.saved)), output,
                        MadeGradient(instruction));
  }
}

}  // namespace millrace
