#include "engine/schedule/builder.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include "engine/schedule/emitter.h"
#include "engine/schedule/step_buffers.h"
#include "engine/schedule/weight_loads.h"

namespace millrace {
namespace {

// Ranges of a long transfer begin on whole pages of any type.
constexpr int64_t kRangeGrain = 2048;

// Writes a step down in program order, unit by unit. What the upload stream brings is written down
// as soon as the memory that it goes to is free, so that it travels while earlier units compute.
class Builder {
 public:
  Builder(const ScheduledModel& model, const Plan& plan, const PassShape& passes, bool training)
      : model_(model),
        plan_(plan),
        shape_(plan.shape),
        passes_(passes),
        head_(model.head()),
        b_(StepBuffers::Make(model, plan, passes, training, emitter_)),
        free_inputs_(b_.input_ring.begin(), b_.input_ring.end()),
        inputs_(b_.inputs) {}

  Schedule Step(bool pending_update) {
    pending_ = pending_update && plan_.update_time == UpdateTime::kBeforeNextUpload;
    std::vector<int> uses;
    for (int64_t group = 0; group < passes_.groups; ++group) {
      for (int unit = 1; unit < head_; ++unit) uses.push_back(unit);
      for (int unit = head_ - 1; unit >= 1; --unit) uses.push_back(unit);
    }
    PlanLoads(uses, plan_.reuse_at_turn);

    UpdatePending(0);
    for (int64_t group = 0; group < passes_.groups; ++group) Group(group);
    for (int64_t b = shape_.micro_batches - 1; b >= 0; --b) Scatter(b);
    GradientLanded(0);
    return std::move(emitter_).Finish();
  }

  Schedule Forward() {
    std::vector<int> uses;
    for (int unit = 1; unit < head_; ++unit) uses.push_back(unit);
    PlanLoads(uses, /*keep=*/true);
    int input = b_.input_ring[0], output = b_.input_ring[1];
    Gather(0, 0, input);
    for (int unit = 1; unit < head_; ++unit) {
      BlockForward(Opcode::kBlockForward, unit, 0, 0, input, b_.shared_saved, kNone, output);
      UseDone();
      HeadRanges(unit);
      std::swap(input, output);
    }
    Evaluate(input);
    return std::move(emitter_).Finish();
  }

 private:
  bool tied() const { return model_.spec.tied_embeddings; }
  bool first_in_sum(int64_t micro_batch) const { return micro_batch == shape_.micro_batches - 1; }
  bool last_in_sum(int64_t micro_batch) const { return micro_batch == 0; }

  // --- Operands ---------------------------------------------------------------------------------

  Access Read(int buffer) const { return {buffer, false, emitter_.buffer(buffer).bytes}; }
  Access Write(int buffer) const { return {buffer, true, emitter_.buffer(buffer).bytes}; }
  // Elements [begin, begin + count).
  Access Part(int buffer, bool write, int64_t begin, int64_t count, DType dtype) const {
    // What is bound takes no memory.
    if (emitter_.buffer(buffer).bytes == 0) return {buffer, write, 0};
    return {buffer, write, ElementBytes(count, dtype), ElementBytes(begin, dtype)};
  }
  int64_t Count(int unit) const { return model_.layouts[unit].count; }

  // Weights in a slot; where that is a binding, the host's own.
  void ReadWeights(std::vector<Access>& accesses, int slot, int unit, int64_t count) const {
    accesses.push_back(Part(slot, false, 0, count, model_.compute_dtype));
    if (plan_.unified) accesses.push_back(Read(b_.host_weights[unit]));
  }
  void ReadPass(std::vector<Access>& accesses, int64_t local) const {
    accesses.push_back(Read(b_.rotary_table));
    accesses.push_back(Read(b_.positions[local]));
  }
  void AddGradient(std::vector<Access>& accesses, int buffer, int64_t begin, int64_t count,
                   DType dtype, bool first) const {
    accesses.push_back(Part(buffer, true, begin, count, dtype));
    if (!first) accesses.push_back(Part(buffer, false, begin, count, dtype));
  }

  // --- Weights ----------------------------------------------------------------------------------

  void PlanLoads(const std::vector<int>& uses, bool keep) {
    const int blocks = head_ - 1;
    loads_ = PlanWeightLoads(
        uses, plan_.weight_slots,
        [&](int unit) { return IsResident(unit, plan_.resident_units, blocks); }, keep);
    updated_.assign(model_.layouts.size(), false);
  }

  // Emits the loads whose slots are free, at least the first `needed`.
  void EmitLoads(int needed) {
    while (emitted_loads_ < static_cast<int>(loads_.loads.size())) {
      const WeightLoad& load = loads_.loads[emitted_loads_];
      if (load.after_use >= uses_done_ && emitted_loads_ >= needed) return;
      UpdatePending(load.unit);
      Upload(load.unit, b_.slots[load.slot], 0, 0);
      ++emitted_loads_;
    }
  }
  int UseSlot() {
    const WeightLoads::Use& use = loads_.uses[uses_done_];
    EmitLoads(use.loads);
    return b_.slots[use.slot];
  }
  void UseDone() {
    ++uses_done_;
    EmitLoads(0);
  }

  void Upload(int unit, int slot, int64_t begin, int64_t count) {
    const bool tile = emitter_.buffer(slot).kind == BufferKind::kTileSlot;
    emitter_.Emit(
        {.opcode = Opcode::kUpload,
         .stream = StreamId::kUpload,
         .unit = unit,
         .begin = begin,
         .count = count,
         .weights = slot},
        {Read(b_.host_weights[unit]), Part(slot, true, tile ? 0 : begin,
                                           count > 0 ? count : Count(unit), model_.compute_dtype)});
  }

  // What the step before left to be done.
  void UpdatePending(int unit) {
    if (!pending_ || updated_[unit]) return;
    updated_[unit] = true;
    Update(unit);
  }

  void Update(int unit) {
    emitter_.Emit({.opcode = Opcode::kUpdate,
                   .stream = StreamId::kHost,
                   .unit = unit,
                   .input = b_.host_gradients[unit]},
                  {Read(b_.host_gradients[unit]), Read(b_.norm), Read(b_.loss),
                   Write(b_.host_weights[unit])});
  }

  // The head is far larger than a block: it comes in ranges, spread over the second half of the
  // blocks, so that none waits behind it. Called after each block of the (first) forward pass.
  void HeadRanges(int unit) {
    const int blocks = head_ - 1;
    const int from = blocks / 2;
    if (unit == std::max(from, 1)) UpdatePending(head_);
    if (TiledHead(plan_)) return;
    const int parts = blocks - from;
    const int part = unit - from - 1;
    if (part < 0) return;
    const auto range = [&](int of, int slot) {
      const int64_t count = Count(of);
      if (plan_.unified) {
        if (part == 0) Upload(of, slot, 0, 0);
        return;
      }
      const int64_t begin = Cut(count, part, parts), end = Cut(count, part + 1, parts);
      if (end > begin) Upload(of, slot, begin, end - begin);
    };
    range(head_, b_.head_slot);
    if (tied()) range(0, b_.tied_slot);
  }
  static int64_t Cut(int64_t count, int64_t part, int64_t parts) {
    return part == parts ? count : count / kRangeGrain * part / parts * kRangeGrain;
  }

  // --- Layer inputs -----------------------------------------------------------------------------

  bool Offloaded(int64_t pass) const { return b_.host_inputs[pass] != kNone; }

  // Memory for the input of a pass that is about to be made.
  int NewInput(int64_t pass) {
    if (pass >= passes_.passes()) return b_.head_inputs[pass - passes_.passes()];
    if (Offloaded(pass)) inputs_[pass] = TakeFreeInput();
    return inputs_[pass];
  }
  int TakeFreeInput() {
    const int buffer = free_inputs_.front();
    free_inputs_.pop_front();
    return buffer;
  }
  void FreeInput(int64_t pass) {
    if (Offloaded(pass)) free_inputs_.push_back(std::exchange(inputs_[pass], kNone));
  }
  // The first block's inputs are in host memory already, where they were gathered.
  void Offload(int64_t pass) {
    if (pass < passes_.group || pass >= passes_.passes() || !Offloaded(pass)) return;
    emitter_.Emit({.opcode = Opcode::kOffloadInput,
                   .stream = StreamId::kDownload,
                   .unit = static_cast<int>(pass / passes_.group) + 1,
                   .input = inputs_[pass],
                   .output = b_.host_inputs[pass]},
                  {Read(inputs_[pass]), Write(b_.host_inputs[pass])});
  }
  // Fetches inputs for backward, in its order, while there is memory for them.
  void FetchInputs() {
    while (!fetches_.empty() && !free_inputs_.empty()) {
      const int64_t pass = fetches_.front();
      fetches_.pop_front();
      inputs_[pass] = TakeFreeInput();
      emitter_.Emit({.opcode = Opcode::kFetchInput,
                     .stream = StreamId::kUpload,
                     .unit = static_cast<int>(pass / passes_.group) + 1,
                     .input = b_.host_inputs[pass],
                     .output = inputs_[pass]},
                    {Read(b_.host_inputs[pass]), Write(inputs_[pass])});
    }
  }

  // Rows of the embedding for a micro-batch, and the positions of its tokens.
  void Gather(int64_t micro_batch, int64_t local, int output) {
    const int b = static_cast<int>(micro_batch);
    if (plan_.unified) {
      emitter_.Emit({.opcode = Opcode::kEmbedGather,
                     .stream = StreamId::kHost,
                     .unit = 0,
                     .micro_batch = b,
                     .output = output,
                     .positions = b_.positions[local]},
                    {Read(b_.host_weights[0]), Write(output), Write(b_.positions[local])});
      return;
    }
    const bool stays = !b_.host_inputs.empty() && Offloaded(local);
    const int rows = stays ? b_.host_inputs[local]
                           : b_.staging_up[static_cast<size_t>(gathers_++) % b_.staging_up.size()];
    emitter_.Emit({.opcode = Opcode::kEmbedGather,
                   .stream = StreamId::kHost,
                   .unit = 0,
                   .micro_batch = b,
                   .output = rows},
                  {Read(b_.host_weights[0]), Write(rows)});
    emitter_.Emit({.opcode = Opcode::kUploadRows,
                   .stream = StreamId::kUpload,
                   .unit = 0,
                   .micro_batch = b,
                   .input = rows,
                   .output = output,
                   .positions = b_.positions[local]},
                  {Read(rows), Write(output), Write(b_.positions[local])});
  }

  // --- Blocks -----------------------------------------------------------------------------------

  int Remade(KeepLevel keep) const { return keep == KeepLevel::kSelective ? b_.remade : kNone; }
  int Saved(int64_t pass) const {
    return b_.saved[pass] == kNone ? b_.shared_saved : b_.saved[pass];
  }
  int ResidualGradient(int64_t micro_batch, int64_t local) const {
    return b_.residual_gradients[plan_.unified ? micro_batch : local];
  }

  void BlockForward(Opcode opcode, int unit, int64_t micro_batch, int64_t local, int input,
                    int saved, int remade, int output) {
    const int slot = UseSlot();
    std::vector<Access> accesses = {Read(input), Write(b_.workspace)};
    if (opcode == Opcode::kBlockRemake) {
      accesses.push_back(Read(saved));
    } else {
      accesses.push_back(Write(saved));
    }
    if (remade != kNone) accesses.push_back(Write(remade));
    if (output != kNone) accesses.push_back(Write(output));
    ReadWeights(accesses, slot, unit, Count(unit));
    ReadPass(accesses, local);
    emitter_.Emit({.opcode = opcode,
                   .stream = StreamId::kCompute,
                   .unit = unit,
                   .micro_batch = static_cast<int>(micro_batch),
                   .weights = slot,
                   .input = input,
                   .output = output,
                   .saved = saved,
                   .remade = remade,
                   .positions = b_.positions[local]},
                  std::move(accesses));
  }

  void BlockBackward(int unit, int64_t micro_batch, int64_t local) {
    const int64_t pass = passes_.Index(unit, local);
    const KeepLevel keep = KeepOf(plan_, passes_, pass);
    const int input = inputs_[pass];
    const int saved = Saved(pass), remade = Remade(keep);
    // The last pass of forward is still where the others are made again.
    if (keep == KeepLevel::kRecompute && pass + 1 < passes_.passes()) {
      BlockForward(Opcode::kBlockRecompute, unit, micro_batch, local, input, saved, kNone, kNone);
    } else if (keep == KeepLevel::kSelective) {
      BlockForward(Opcode::kBlockRemake, unit, micro_batch, local, input, saved, remade, kNone);
    }
    const int slot = UseSlot();
    const int gradient = BlockGradient(unit);
    const int residual_gradient = ResidualGradient(micro_batch, local);
    const bool first = first_in_sum(micro_batch);
    std::vector<Access> accesses = {Read(input),
                                    Read(saved),
                                    Write(b_.block_scratch),
                                    Write(b_.workspace),
                                    Read(residual_gradient),
                                    Write(residual_gradient)};
    if (remade != kNone) accesses.push_back(Read(remade));
    AddGradient(accesses, gradient, 0, Count(unit), AccumulatorDType(model_, shape_, unit), first);
    ReadWeights(accesses, slot, unit, Count(unit));
    ReadPass(accesses, local);
    emitter_.Emit({.opcode = Opcode::kBlockBackward,
                   .stream = StreamId::kCompute,
                   .unit = unit,
                   .micro_batch = static_cast<int>(micro_batch),
                   .weights = slot,
                   .input = input,
                   .output = residual_gradient,
                   .saved = saved,
                   .remade = remade,
                   .scratch = b_.block_scratch,
                   .positions = b_.positions[local],
                   .gradient = gradient,
                   .first_gradient = first},
                  std::move(accesses));
    FreeInput(pass);
    FetchInputs();
  }

  // --- Gradients --------------------------------------------------------------------------------

  bool Convert(int unit) const {
    return AccumulatorDType(model_, shape_, unit) != model_.gradient_dtypes[unit];
  }
  // Where a block's gradient is made.
  int BlockGradient(int unit) const {
    if (!b_.accumulators.empty()) {
      return b_.accumulators[static_cast<size_t>(unit) % b_.accumulators.size()];
    }
    return Convert(unit) ? b_.host_accumulators[unit] : b_.host_gradients[unit];
  }

  // Batch-major: brings back what the micro-batches before have added up.
  void FetchAccumulator(int unit, int64_t micro_batch) {
    if (passes_.groups == 1 || plan_.unified || first_in_sum(micro_batch)) return;
    MoveAccumulator(Opcode::kFetchAccumulator, StreamId::kUpload, unit, b_.host_accumulators[unit],
                    BlockGradient(unit));
  }
  void MoveAccumulator(Opcode opcode, StreamId stream, int unit, int from, int to) {
    const DType dtype = AccumulatorDType(model_, shape_, unit);
    emitter_.Emit(
        {.opcode = opcode, .stream = stream, .unit = unit, .input = from, .output = to},
        {Part(from, false, 0, Count(unit), dtype), Part(to, true, 0, Count(unit), dtype)});
  }

  void BlockGradientDone(int unit, bool last) {
    if (last) {
      Land({.unit = unit,
            .count = Count(unit),
            .made = BlockGradient(unit),
            .converted = b_.converted.empty()
                             ? kNone
                             : b_.converted[static_cast<size_t>(unit) % b_.converted.size()]});
      GradientLanded(unit);
    } else if (!plan_.unified) {
      MoveAccumulator(Opcode::kOffloadAccumulator, StreamId::kDownload, unit, BlockGradient(unit),
                      b_.host_accumulators[unit]);
    }
  }

  // A gradient, or a range of one, on its way from where it was made to where the host keeps it.
  struct Landing {
    int unit;
    int64_t begin = 0;  // elements of the unit's slab
    int64_t count;
    int made;
    int converted = kNone;
    bool range_only = false;  // `made` and `converted` begin with the range, not with the slab
  };

  Access PartOf(const Landing& l, int buffer, bool write, DType dtype) const {
    const bool on_host = SpaceOf(emitter_.buffer(buffer).kind) == MemorySpace::kHost;
    return Part(buffer, write, l.range_only && !on_host ? 0 : l.begin, l.count, dtype);
  }
  void ConvertGradient(const Landing& l) {
    if (!Convert(l.unit)) return;
    const int target = plan_.unified ? b_.host_gradients[l.unit] : l.converted;
    emitter_.Emit({.opcode = Opcode::kConvertGradient,
                   .stream = StreamId::kCompute,
                   .unit = l.unit,
                   .begin = l.begin,
                   .count = l.count,
                   .input = l.made,
                   .output = target,
                   .range_only = l.range_only},
                  {PartOf(l, l.made, false, DType::kF32),
                   PartOf(l, target, true, model_.gradient_dtypes[l.unit])});
  }
  void DownloadGradient(const Landing& l) {
    if (plan_.unified) return;
    const int source = Convert(l.unit) ? l.converted : l.made;
    emitter_.Emit({.opcode = Opcode::kDownloadGradient,
                   .stream = StreamId::kDownload,
                   .unit = l.unit,
                   .begin = l.begin,
                   .count = l.count,
                   .input = source,
                   .output = b_.host_gradients[l.unit],
                   .range_only = l.range_only},
                  {PartOf(l, source, false, model_.gradient_dtypes[l.unit]),
                   PartOf(l, b_.host_gradients[l.unit], true, model_.gradient_dtypes[l.unit])});
  }
  void Land(const Landing& landing) {
    ConvertGradient(landing);
    DownloadGradient(landing);
  }

  void GradientLanded(int unit) {
    emitter_.Emit({.opcode = Opcode::kGradientNorm,
                   .stream = StreamId::kHost,
                   .unit = unit,
                   .input = b_.host_gradients[unit]},
                  {Read(b_.host_gradients[unit]), Write(b_.host_gradients[unit]), Read(b_.norm),
                   Write(b_.norm)});
    if (plan_.update_time == UpdateTime::kAsGradientLands) Update(unit);
  }

  // --- Head -------------------------------------------------------------------------------------

  int HeadGradient() const {
    return b_.head_accumulator == kNone ? b_.host_gradients[head_] : b_.head_accumulator;
  }
  int TiedGradient() const { return plan_.unified ? b_.host_gradients[0] : b_.tied_accumulator; }
  int projection_unit() const { return tied() ? 0 : head_; }

  void ClearEmbeddingGradient() {
    emitter_.Emit({.opcode = Opcode::kClearEmbeddingGradient,
                   .stream = StreamId::kHost,
                   .unit = 0,
                   .output = b_.host_gradients[0]},
                  {Write(b_.host_gradients[0])});
  }

  void WholeHead(int64_t micro_batch, int64_t local) {
    const DType made = AccumulatorDType(model_, shape_, head_);
    const bool first = first_in_sum(micro_batch);
    Instruction head{.opcode = Opcode::kHead,
                     .stream = StreamId::kCompute,
                     .unit = head_,
                     .micro_batch = static_cast<int>(micro_batch),
                     .weights = b_.head_slot,
                     .input = b_.head_inputs[local],
                     .output = ResidualGradient(micro_batch, local),
                     .scratch = b_.head_scratch,
                     .gradient = HeadGradient(),
                     .first_gradient = first};
    std::vector<Access> accesses = {Write(b_.head_scratch), Write(b_.workspace), Write(b_.loss),
                                    Read(head.input), Write(head.output)};
    AddGradient(accesses, head.gradient, 0, Count(head_), made, first);
    ReadWeights(accesses, b_.head_slot, head_, Count(head_));
    if (tied()) {
      head.tied_weights = b_.tied_slot;
      ReadWeights(accesses, b_.tied_slot, 0, Count(0));
      head.tied_gradient = TiedGradient();
      AddGradient(accesses, head.tied_gradient, 0, Count(0), model_.gradient_dtypes[0], first);
    }
    emitter_.Emit(std::move(head), std::move(accesses));
  }

  // What of the head's gradient comes down after a block: its ranges are spread like those of its
  // weights, so that no block's gradient waits behind them.
  void WholeHeadDone() {
    ConvertGradient(WholeHeadLanding());
    if (plan_.unified) GradientLanded(head_);
  }
  Landing WholeHeadLanding() const {
    return {.unit = head_,
            .count = Count(head_),
            .made = HeadGradient(),
            .converted = b_.head_converted};
  }
  void HeadGradientRanges(int unit) {
    if (plan_.unified || TiledHead(plan_)) return;
    const int parts = (head_ - 1) - (head_ - 1) / 2;
    const int part = head_ - 1 - unit;
    if (part >= parts) return;
    const auto range = [&](Landing landing) {
      const int64_t total = landing.count;
      landing.begin = Cut(total, part, parts);
      landing.count = Cut(total, part + 1, parts) - landing.begin;
      if (landing.count > 0) DownloadGradient(landing);
    };
    range(WholeHeadLanding());
    if (tied()) {
      // The head makes the token table's gradient alone: the rest was cleared.
      const TensorLayout& table = *model_.layouts[0].Find(TensorRole::kTokenEmbedding);
      Landing landing{.unit = 0, .count = table.count(), .made = b_.tied_accumulator};
      const int64_t begin = Cut(landing.count, part, parts);
      landing.count = Cut(landing.count, part + 1, parts) - begin;
      landing.begin = table.offset + begin;
      if (landing.count > 0) DownloadGradient(landing);
    }
    if (part + 1 == parts) GradientLanded(head_);
  }

  // Calls `function` for each tile with its weights' slot.
  void ForEachTile(const std::function<void(int64_t first, int64_t count, int slot)>& function) {
    const int64_t vocab = model_.spec.vocab_size, hidden = model_.spec.hidden_size;
    const int unit = projection_unit();
    const int64_t offset = ProjectionOffset();
    for (int64_t first = 0; first < vocab; first += shape_.vocab_tile) {
      const int64_t count = std::min(shape_.vocab_tile, vocab - first);
      const int slot = b_.tile_slots[static_cast<size_t>(tiles_++) % b_.tile_slots.size()];
      Upload(unit, slot, offset + first * hidden, count * hidden);
      function(first, count, slot);
    }
  }
  int64_t ProjectionOffset() const {
    return model_.layouts[projection_unit()]
        .Find(tied() ? TensorRole::kTokenEmbedding : TensorRole::kOutputProjection)
        ->offset;
  }
  // The head's norm, and a tile of its weights.
  void ReadTile(std::vector<Access>& accesses, int slot, int64_t count) const {
    ReadWeights(accesses, b_.head_slot, head_, HeadTileOffset(model_));
    ReadWeights(accesses, slot, projection_unit(), count * model_.spec.hidden_size);
  }

  void TileStatistics(int64_t micro_batch, int64_t local, int input, int64_t first, int64_t count,
                      int slot) {
    const bool last = first + count == model_.spec.vocab_size;
    const int statistics = b_.head_statistics[local];
    std::vector<Access> accesses = {Read(input), Write(b_.head_scratch), Write(b_.workspace),
                                    Write(statistics)};
    if (first > 0) accesses.push_back(Read(statistics));
    if (last) accesses.push_back(Write(b_.loss));
    ReadTile(accesses, slot, count);
    emitter_.Emit({.opcode = Opcode::kHeadStatistics,
                   .stream = StreamId::kCompute,
                   .unit = head_,
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

  // Layer-major alone: every tile meets all micro-batches of the step.
  void TiledHeadPass() {
    const int64_t hidden = model_.spec.hidden_size;
    Upload(head_, b_.head_slot, 0, HeadTileOffset(model_));
    ForEachTile([&](int64_t first, int64_t count, int slot) {
      for (int64_t b = shape_.micro_batches - 1; b >= 0; --b) {
        TileStatistics(b, b, b_.head_inputs[b], first, count, slot);
      }
    });
    const int unit = projection_unit();
    const DType made = tied() ? model_.gradient_dtypes[0] : AccumulatorDType(model_, shape_, head_);
    const int64_t offset = ProjectionOffset();
    ForEachTile([&](int64_t first, int64_t count, int slot) {
      const size_t turn = static_cast<size_t>(first / shape_.vocab_tile);
      const int tile = b_.tile_accumulators.empty()
                           ? b_.host_gradients[unit]
                           : b_.tile_accumulators[turn % b_.tile_accumulators.size()];
      for (int64_t b = shape_.micro_batches - 1; b >= 0; --b) {
        const int hidden_gradient = b_.hidden_gradients[b];
        std::vector<Access> accesses = {Read(b_.head_inputs[b]),      Read(b_.head_statistics[b]),
                                        Write(b_.head_statistics[b]), Write(b_.head_scratch),
                                        Write(b_.workspace),          Write(hidden_gradient)};
        if (first > 0) accesses.push_back(Read(hidden_gradient));
        AddGradient(accesses, tile, b_.tile_accumulators.empty() ? offset + first * hidden : 0,
                    count * hidden, made, first_in_sum(b));
        ReadTile(accesses, slot, count);
        emitter_.Emit({.opcode = Opcode::kHeadTileGradient,
                       .stream = StreamId::kCompute,
                       .unit = head_,
                       .micro_batch = static_cast<int>(b),
                       .begin = first,
                       .count = count,
                       .weights = b_.head_slot,
                       .tied_weights = slot,
                       .input = b_.head_inputs[b],
                       .output = hidden_gradient,
                       .saved = b_.head_statistics[b],
                       .scratch = b_.head_scratch,
                       .gradient = tile,
                       .first_gradient = first_in_sum(b)},
                      std::move(accesses));
      }
      Land({.unit = unit,
            .begin = offset + first * hidden,
            .count = count * hidden,
            .made = tile,
            .converted = b_.tile_converted.empty()
                             ? kNone
                             : b_.tile_converted[turn % b_.tile_converted.size()],
            .range_only = true});
    });
    for (int64_t b = shape_.micro_batches - 1; b >= 0; --b) HeadInputGradient(b);
    Land({.unit = head_,
          .count = HeadTileOffset(model_),
          .made = HeadGradient(),
          .converted = b_.head_converted});
    GradientLanded(head_);
  }

  void HeadInputGradient(int64_t b) {
    const int output = ResidualGradient(b, b);
    std::vector<Access> accesses = {Read(b_.head_inputs[b]), Read(b_.hidden_gradients[b]),
                                    Write(b_.head_scratch), Write(b_.workspace), Write(output)};
    AddGradient(accesses, HeadGradient(), 0, HeadTileOffset(model_),
                AccumulatorDType(model_, shape_, head_), first_in_sum(b));
    ReadWeights(accesses, b_.head_slot, head_, HeadTileOffset(model_));
    emitter_.Emit({.opcode = Opcode::kHeadInputGradient,
                   .stream = StreamId::kCompute,
                   .unit = head_,
                   .micro_batch = static_cast<int>(b),
                   .weights = b_.head_slot,
                   .input = b_.head_inputs[b],
                   .output = output,
                   .saved = b_.hidden_gradients[b],
                   .scratch = b_.head_scratch,
                   .gradient = HeadGradient(),
                   .first_gradient = first_in_sum(b)},
                  std::move(accesses));
  }

  // Loss, or logits, of what the last block gave.
  void Evaluate(int input) {
    if (TiledHead(plan_)) {
      Upload(head_, b_.head_slot, 0, HeadTileOffset(model_));
      ForEachTile([&](int64_t first, int64_t count, int slot) {
        TileStatistics(0, 0, input, first, count, slot);
      });
      return;
    }
    Instruction head{.opcode = Opcode::kHeadEvaluate,
                     .stream = StreamId::kCompute,
                     .unit = head_,
                     .micro_batch = 0,
                     .weights = b_.head_slot,
                     .input = input,
                     .scratch = b_.head_scratch};
    std::vector<Access> accesses = {Read(input), Write(b_.head_scratch), Write(b_.workspace),
                                    Write(b_.loss)};
    ReadWeights(accesses, b_.head_slot, head_, Count(head_));
    if (tied()) {
      head.tied_weights = b_.tied_slot;
      ReadWeights(accesses, b_.tied_slot, 0, Count(0));
    }
    emitter_.Emit(std::move(head), std::move(accesses));
  }

  // --- Order ------------------------------------------------------------------------------------

  void Group(int64_t group) {
    // In batch-major order micro-batches come last first, as sums need them.
    const auto micro_batch = [&](int64_t local) {
      return passes_.groups == 1 ? local : passes_.groups - 1 - group;
    };
    const bool last = last_in_sum(micro_batch(0));

    Gather(micro_batch(0), 0, NewInput(0));
    // The first weights go ahead of the other micro-batches' rows.
    EmitLoads(1);
    for (int64_t l = 1; l < passes_.group; ++l) Gather(micro_batch(l), l, NewInput(l));
    EmitLoads(0);
    for (int unit = 1; unit < head_; ++unit) {
      for (int64_t l = 0; l < passes_.group; ++l) {
        const int64_t pass = passes_.Index(unit, l);
        const int input = inputs_[pass];
        const int output = NewInput(passes_.Index(unit + 1, l));
        BlockForward(Opcode::kBlockForward, unit, micro_batch(l), l, input, Saved(pass),
                     Remade(KeepOf(plan_, passes_, pass)), output);
        Offload(passes_.Index(unit + 1, l));
        FreeInput(pass);
      }
      UseDone();
      if (group == 0) HeadRanges(unit);
    }

    if (group == 0) ClearEmbeddingGradient();
    for (int64_t pass = passes_.passes() - 1; pass >= 0; --pass) {
      if (Offloaded(pass)) fetches_.push_back(pass);
    }
    FetchInputs();
    if (TiledHead(plan_)) {
      TiledHeadPass();
    } else {
      for (int64_t l = passes_.group - 1; l >= 0; --l) WholeHead(micro_batch(l), l);
      if (last) WholeHeadDone();
    }

    FetchAccumulator(head_ - 1, micro_batch(0));
    for (int unit = head_ - 1; unit >= 1; --unit) {
      if (unit > 1) FetchAccumulator(unit - 1, micro_batch(0));
      for (int64_t l = passes_.group - 1; l >= 0; --l) BlockBackward(unit, micro_batch(l), l);
      UseDone();
      BlockGradientDone(unit, last);
      if (last) HeadGradientRanges(unit);
    }
    if (passes_.groups > 1) DownloadRows(micro_batch(0), 0);
  }

  void DownloadRows(int64_t micro_batch, int64_t local) {
    if (plan_.unified) return;
    const int rows = b_.staging_down[static_cast<size_t>(micro_batch) % b_.staging_down.size()];
    emitter_.Emit({.opcode = Opcode::kDownloadRows,
                   .stream = StreamId::kDownload,
                   .unit = 0,
                   .micro_batch = static_cast<int>(micro_batch),
                   .input = ResidualGradient(micro_batch, local),
                   .output = rows},
                  {Read(ResidualGradient(micro_batch, local)), Write(rows)});
  }

  void Scatter(int64_t micro_batch) {
    if (passes_.groups == 1) DownloadRows(micro_batch, micro_batch);
    const int rows =
        plan_.unified ? b_.residual_gradients[micro_batch]
                      : b_.staging_down[static_cast<size_t>(micro_batch) % b_.staging_down.size()];
    emitter_.Emit({.opcode = Opcode::kEmbedScatter,
                   .stream = StreamId::kHost,
                   .unit = 0,
                   .micro_batch = static_cast<int>(micro_batch),
                   .input = rows,
                   .gradient = b_.host_gradients[0]},
                  {Read(rows), Read(b_.host_gradients[0]), Write(b_.host_gradients[0])});
  }

  const ScheduledModel& model_;
  const Plan& plan_;
  const StepShape& shape_;
  const PassShape passes_;
  const int head_;
  Emitter emitter_;
  const StepBuffers b_;

  WeightLoads loads_;
  int emitted_loads_ = 0, uses_done_ = 0;
  bool pending_ = false;
  std::vector<bool> updated_;
  std::deque<int> free_inputs_;
  std::deque<int64_t> fetches_;
  std::vector<int> inputs_;  // where the input of each pass is now
  int64_t gathers_ = 0, tiles_ = 0;
};

}  // namespace

size_t RotaryTableBytes(const ModelSpec& spec, const StepShape& shape) {
  if (spec.position != PositionKind::kRotary) return 0;
  return static_cast<size_t>(shape.longest_document * spec.head_dim) * sizeof(float);
}

DType AccumulatorDType(const ScheduledModel& model, const StepShape& shape, int unit) {
  const bool chunked = unit == model.head() && shape.tokens_per_micro_batch > shape.token_chunk;
  return shape.micro_batches > 1 || chunked ? DType::kF32 : model.gradient_dtypes[unit];
}

Schedule BuildStepSchedule(const ScheduledModel& model, const Plan& plan, bool pending_update) {
  return Builder(model, plan, PassesOf(model, plan), /*training=*/true).Step(pending_update);
}

Schedule BuildForwardSchedule(const ScheduledModel& model, const Plan& plan) {
  const PassShape one{.groups = 1, .group = 1, .blocks = model.num_blocks()};
  return Builder(model, plan, one, /*training=*/false).Forward();
}

}  // namespace millrace
