#include "engine/schedule/head_writer.h"

#include <algorithm>
#include <utility>

namespace millrace {
namespace {

// Ranges of a long transfer begin on whole pages of any type.
constexpr int64_t kRangeGrain = 2048;

// Where range `part` of `parts` of `count` elements begins.
int64_t Cut(int64_t count, int64_t part, int64_t parts) {
  return part == parts ? count : count / kRangeGrain * part / parts * kRangeGrain;
}

}  // namespace

// --- Whole weights ------------------------------------------------------------------------------

void HeadWriter::UploadRange(int unit) {
  const int blocks = w_.head() - 1;
  const int from = blocks / 2;
  if (unit == std::max(from, 1)) w_.UpdatePending(w_.head());
  if (TiledHead(w_.plan())) return;
  const int parts = blocks - from;
  const int part = unit - from - 1;
  if (part < 0) return;
  const auto range = [&](int of, int slot) {
    const int64_t count = w_.Count(of);
    if (w_.plan().unified) {
      if (part == 0) w_.Upload(of, slot, 0, 0);
      return;
    }
    const int64_t begin = Cut(count, part, parts), end = Cut(count, part + 1, parts);
    if (end > begin) w_.Upload(of, slot, begin, end - begin);
  };
  range(w_.head(), b_.head_slot);
  if (w_.tied()) range(0, b_.tied_slot);
}

void HeadWriter::Whole(int64_t micro_batch, int64_t local) {
  const int unit = w_.head();
  const bool first = w_.first_in_sum(micro_batch);
  Instruction head{.opcode = Opcode::kHead,
                   .stream = StreamId::kCompute,
                   .unit = unit,
                   .micro_batch = static_cast<int>(micro_batch),
                   .weights = b_.head_slot,
                   .input = b_.head_inputs[local],
                   .output = w_.ResidualGradient(micro_batch, local),
                   .scratch = b_.head_scratch,
                   .gradient = Gradient(),
                   .first_gradient = first};
  std::vector<Access> accesses = {w_.Write(b_.head_scratch), w_.Write(b_.workspace),
                                  w_.Write(b_.loss), w_.Read(head.input), w_.Write(head.output)};
  w_.AddGradient(accesses, head.gradient, 0, w_.Count(unit),
                 AccumulatorDType(w_.model(), w_.shape(), unit), first);
  w_.ReadWeights(accesses, b_.head_slot, unit, w_.Count(unit));
  if (w_.tied()) {
    head.tied_weights = b_.tied_slot;
    w_.ReadWeights(accesses, b_.tied_slot, 0, w_.Count(0));
    head.tied_gradient = TiedGradient();
    w_.AddGradient(accesses, head.tied_gradient, 0, w_.Count(0), w_.model().gradient_dtypes[0],
                   first);
  }
  w_.Emit(std::move(head), std::move(accesses));
}

StepWriter::Landing HeadWriter::WholeLanding() const {
  return {.unit = w_.head(),
          .count = w_.Count(w_.head()),
          .made = Gradient(),
          .converted = b_.head_converted};
}

void HeadWriter::WholeDone() {
  w_.ConvertGradient(WholeLanding());
  if (w_.plan().unified) w_.GradientLanded(w_.head());
}

void HeadWriter::DownloadRange(int unit) {
  if (w_.plan().unified || TiledHead(w_.plan())) return;
  const int blocks = w_.head() - 1;
  const int parts = blocks - blocks / 2;
  const int part = blocks - unit;
  if (part >= parts) return;
  const auto range = [&](StepWriter::Landing landing) {
    const int64_t begin = Cut(landing.count, part, parts);
    landing.count = Cut(landing.count, part + 1, parts) - begin;
    landing.begin += begin;
    if (landing.count > 0) w_.DownloadGradient(landing);
  };
  range(WholeLanding());
  if (w_.tied()) {
    // The head makes the token table's gradient alone: the rest was cleared.
    const TensorLayout& table = *w_.model().layouts[0].Find(TensorRole::kTokenEmbedding);
    range({.unit = 0, .begin = table.offset, .count = table.count(), .made = b_.tied_accumulator});
  }
  if (part + 1 == parts) w_.GradientLanded(w_.head());
}

// --- Weights in tiles ---------------------------------------------------------------------------

int64_t HeadWriter::ProjectionOffset() const {
  return w_.model()
      .layouts[projection_unit()]
      .Find(w_.tied() ? TensorRole::kTokenEmbedding : TensorRole::kOutputProjection)
      ->offset;
}

void HeadWriter::ForEachTile(
    const std::function<void(int64_t first, int64_t count, int slot)>& function) {
  const int64_t vocab = w_.model().spec.vocab_size, hidden = w_.model().spec.hidden_size;
  const int64_t offset = ProjectionOffset();
  for (int64_t first = 0; first < vocab; first += w_.shape().vocab_tile) {
    const int64_t count = std::min(w_.shape().vocab_tile, vocab - first);
    const int slot = b_.tile_slots[static_cast<size_t>(tiles_++) % b_.tile_slots.size()];
    w_.Upload(projection_unit(), slot, offset + first * hidden, count * hidden);
    function(first, count, slot);
  }
}

void HeadWriter::ReadTile(std::vector<Access>& accesses, int slot, int64_t count) const {
  w_.ReadWeights(accesses, b_.head_slot, w_.head(), HeadTileOffset(w_.model()));
  w_.ReadWeights(accesses, slot, projection_unit(), count * w_.model().spec.hidden_size);
}

void HeadWriter::TileStatistics(int64_t micro_batch, int64_t local, int input, int64_t first,
                                int64_t count, int slot) {
  const bool last = first + count == w_.model().spec.vocab_size;
  const int statistics = b_.head_statistics[local];
  std::vector<Access> accesses = {w_.Read(input), w_.Write(b_.head_scratch), w_.Write(b_.workspace),
                                  w_.Write(statistics)};
  if (first > 0) accesses.push_back(w_.Read(statistics));
  if (last) accesses.push_back(w_.Write(b_.loss));
  ReadTile(accesses, slot, count);
  w_.Emit({.opcode = Opcode::kHeadStatistics,
           .stream = StreamId::kCompute,
           .unit = w_.head(),
           .micro_batch = static_cast<int>(micro_batch),
           .begin = first,
           .count = count,
           .weights = b_.head_slot,
           .tied_weights = slot,
           .input = input,
           .output = statistics,
           .scratch = b_.head_scratch},
          std::move(accesses));
}

void HeadWriter::TileGradient(int64_t micro_batch, int gradient, int64_t first, int64_t count,
                              int slot) {
  const int64_t b = micro_batch, hidden = w_.model().spec.hidden_size;
  const int hidden_gradient = b_.hidden_gradients[b];
  std::vector<Access> accesses = {w_.Read(b_.head_inputs[b]),      w_.Read(b_.head_statistics[b]),
                                  w_.Write(b_.head_statistics[b]), w_.Write(b_.head_scratch),
                                  w_.Write(b_.workspace),          w_.Write(hidden_gradient)};
  if (first > 0) accesses.push_back(w_.Read(hidden_gradient));
  const bool in_slab = b_.tile_accumulators.empty();  // the host's own
  w_.AddGradient(accesses, gradient, in_slab ? ProjectionOffset() + first * hidden : 0,
                 count * hidden,
                 w_.tied() ? w_.model().gradient_dtypes[0]
                           : AccumulatorDType(w_.model(), w_.shape(), w_.head()),
                 w_.first_in_sum(b));
  ReadTile(accesses, slot, count);
  w_.Emit({.opcode = Opcode::kHeadTileGradient,
           .stream = StreamId::kCompute,
           .unit = w_.head(),
           .micro_batch = static_cast<int>(b),
           .begin = first,
           .count = count,
           .weights = b_.head_slot,
           .tied_weights = slot,
           .input = b_.head_inputs[b],
           .output = hidden_gradient,
           .saved = b_.head_statistics[b],
           .scratch = b_.head_scratch,
           .gradient = gradient,
           .first_gradient = w_.first_in_sum(b)},
          std::move(accesses));
}

void HeadWriter::InputGradient(int64_t micro_batch) {
  const int64_t b = micro_batch, norm_count = HeadTileOffset(w_.model());
  const int output = w_.ResidualGradient(b, b);
  std::vector<Access> accesses = {w_.Read(b_.head_inputs[b]), w_.Read(b_.hidden_gradients[b]),
                                  w_.Write(b_.head_scratch), w_.Write(b_.workspace),
                                  w_.Write(output)};
  w_.AddGradient(accesses, Gradient(), 0, norm_count,
                 AccumulatorDType(w_.model(), w_.shape(), w_.head()), w_.first_in_sum(b));
  w_.ReadWeights(accesses, b_.head_slot, w_.head(), norm_count);
  w_.Emit({.opcode = Opcode::kHeadInputGradient,
           .stream = StreamId::kCompute,
           .unit = w_.head(),
           .micro_batch = static_cast<int>(b),
           .weights = b_.head_slot,
           .input = b_.head_inputs[b],
           .output = output,
           .saved = b_.hidden_gradients[b],
           .scratch = b_.head_scratch,
           .gradient = Gradient(),
           .first_gradient = w_.first_in_sum(b)},
          std::move(accesses));
}

void HeadWriter::Tiles() {
  const int64_t micro_batches = w_.shape().micro_batches;
  const int64_t hidden = w_.model().spec.hidden_size;
  const int64_t norm_count = HeadTileOffset(w_.model());
  w_.Upload(w_.head(), b_.head_slot, 0, norm_count);
  ForEachTile([&](int64_t first, int64_t count, int slot) {
    for (int64_t b = micro_batches - 1; b >= 0; --b) {
      TileStatistics(b, b, b_.head_inputs[b], first, count, slot);
    }
  });
  ForEachTile([&](int64_t first, int64_t count, int slot) {
    const size_t turn = static_cast<size_t>(first / w_.shape().vocab_tile);
    const auto in_turn = [turn](const std::vector<int>& buffers, int otherwise) {
      return buffers.empty() ? otherwise : buffers[turn % buffers.size()];
    };
    const int gradient = in_turn(b_.tile_accumulators, b_.host_gradients[projection_unit()]);
    for (int64_t b = micro_batches - 1; b >= 0; --b) TileGradient(b, gradient, first, count, slot);
    w_.Land({.unit = projection_unit(),
             .begin = ProjectionOffset() + first * hidden,
             .count = count * hidden,
             .made = gradient,
             .converted = in_turn(b_.tile_converted, kNone),
             .range_only = true});
  });
  for (int64_t b = micro_batches - 1; b >= 0; --b) InputGradient(b);
  w_.Land(
      {.unit = w_.head(), .count = norm_count, .made = Gradient(), .converted = b_.head_converted});
  w_.GradientLanded(w_.head());
}

// --- Evaluation ---------------------------------------------------------------------------------

void HeadWriter::Evaluate(int input) {
  const int unit = w_.head();
  if (TiledHead(w_.plan())) {
    w_.Upload(unit, b_.head_slot, 0, HeadTileOffset(w_.model()));
    ForEachTile([&](int64_t first, int64_t count, int slot) {
      TileStatistics(0, 0, input, first, count, slot);
    });
    return;
  }
  Instruction head{.opcode = Opcode::kHeadEvaluate,
                   .stream = StreamId::kCompute,
                   .unit = unit,
                   .micro_batch = 0,
                   .weights = b_.head_slot,
                   .input = input,
                   .scratch = b_.head_scratch};
  std::vector<Access> accesses = {w_.Read(input), w_.Write(b_.head_scratch), w_.Write(b_.workspace),
                                  w_.Write(b_.loss)};
  w_.ReadWeights(accesses, b_.head_slot, unit, w_.Count(unit));
  if (w_.tied()) {
    head.tied_weights = b_.tied_slot;
    w_.ReadWeights(accesses, b_.tied_slot, 0, w_.Count(0));
  }
  w_.Emit(std::move(head), std::move(accesses));
}

}  // namespace millrace
