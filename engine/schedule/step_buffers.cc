#include "engine/schedule/step_buffers.h"

#include <algorithm>

#include "engine/model/block.h"
#include "engine/model/head.h"
#include "engine/schedule/weight_loads.h"

namespace millrace {
namespace {

// Gradients that can be on their way to the host while the next one is made.
constexpr int kGradientsInFlight = 2;
// Layer inputs beyond those that one unit works on, to be fetched or offloaded meanwhile.
constexpr int64_t kInputsInFlight = 2;
constexpr int kTilesInFlight = 2;

class Maker {
 public:
  Maker(const ScheduledModel& model, const Plan& plan, const PassShape& passes, bool training,
        Emitter& emitter)
      : model_(model),
        spec_(model.spec),
        plan_(plan),
        shape_(plan.shape),
        passes_(passes),
        dtype_(model.compute_dtype),
        tokens_(plan.shape.tokens_per_micro_batch),
        training_(training),
        emitter_(emitter) {}

  StepBuffers Make() {
    // First, so that it has the same place in every schedule.
    b_.rotary_table = Add(BufferKind::kRotaryTable, 0, RotaryTableBytes(spec_, shape_));
    Weights();
    HostGradients();
    Activations();
    if (training_) DeviceGradients();
    b_.workspace = Add(BufferKind::kOpsWorkspace, 0, model_.ops_workspace_bytes);
    return std::move(b_);
  }

 private:
  int Add(BufferKind kind, int64_t index, size_t bytes) {
    return emitter_.AddBuffer(kind, index, bytes);
  }
  std::vector<int> AddMany(BufferKind kind, int64_t count, size_t bytes) {
    std::vector<int> buffers;
    for (int64_t i = 0; i < count; ++i) buffers.push_back(Add(kind, i, bytes));
    return buffers;
  }
  // Where an upload binds what is there, a slot takes nothing.
  size_t Slot(int64_t count) const { return plan_.unified ? 0 : ElementBytes(count, dtype_); }
  // Elements of the largest block.
  int64_t BlockCount() const {
    int64_t count = 0;
    for (int unit = 1; unit < model_.head(); ++unit) {
      count = std::max(count, model_.layouts[unit].count);
    }
    return count;
  }
  const SlabLayout& head() const { return model_.layouts.back(); }

  void Weights() {
    const int units = static_cast<int>(model_.layouts.size());
    for (int unit = 0; unit < units; ++unit) {
      b_.host_weights.push_back(Add(BufferKind::kHostWeights, unit, 0));
    }
    b_.loss = Add(BufferKind::kLoss, 0, 0);
    b_.norm = Add(BufferKind::kNorm, 0, 0);
    b_.slots = AddMany(BufferKind::kWeightSlot, plan_.weight_slots + plan_.resident_units,
                       Slot(BlockCount()));
    if (TiledHead(plan_)) {
      b_.head_slot = Add(BufferKind::kHeadSlot, 0, Slot(HeadTileOffset(model_)));
      b_.tile_slots = AddMany(BufferKind::kTileSlot, kTilesInFlight,
                              Slot(shape_.vocab_tile * spec_.hidden_size));
    } else {
      b_.head_slot = Add(BufferKind::kHeadSlot, 0, Slot(head().count));
      if (spec_.tied_embeddings) {
        b_.tied_slot = Add(BufferKind::kTiedSlot, 0, Slot(model_.layouts[0].count));
      }
    }
  }

  // The forward pass alone keeps them in place too: gradients wait there for their update.
  void HostGradients() {
    const int units = static_cast<int>(model_.layouts.size());
    const auto bytes = [&](int unit) {
      return ElementBytes(model_.layouts[unit].count, model_.gradient_dtypes[unit]);
    };
    b_.host_gradients.push_back(Add(BufferKind::kHostGradient, 0, bytes(0)));
    std::vector<int> ring;
    if (plan_.update_time == UpdateTime::kAsGradientLands && plan_.order == Order::kLayerMajor) {
      ring = AddMany(BufferKind::kHostGradient, kGradientsInFlight,
                     ElementBytes(BlockCount(), model_.gradient_dtypes[1]));
    }
    for (int unit = 1; unit < units - 1; ++unit) {
      b_.host_gradients.push_back(ring.empty() ? Add(BufferKind::kHostGradient, unit, bytes(unit))
                                               : ring[static_cast<size_t>(unit) % ring.size()]);
    }
    b_.host_gradients.push_back(Add(BufferKind::kHostGradient, units - 1, bytes(units - 1)));
    if (training_ && passes_.groups > 1) {
      b_.host_accumulators.push_back(kNone);
      for (int unit = 1; unit < units - 1; ++unit) {
        b_.host_accumulators.push_back(Add(BufferKind::kHostAccumulator, unit,
                                           ElementBytes(model_.layouts[unit].count, DType::kF32)));
      }
    }
  }

  void Activations() {
    const int64_t group = passes_.group;
    const size_t input_bytes = ElementBytes(tokens_ * spec_.hidden_size, dtype_);
    b_.positions = AddMany(BufferKind::kPositions, group, ElementBytes(tokens_, DType::kF32));
    if (!plan_.unified) {
      const bool rows_wait = passes_.groups > 1;
      // The rows of inputs that wait in host memory are gathered there.
      if (!training_ || plan_.offloaded_passes < group) {
        b_.staging_up = AddMany(BufferKind::kStaging, 2, input_bytes);
      }
      if (training_) {
        b_.staging_down =
            AddMany(BufferKind::kStaging, rows_wait ? passes_.groups : 2, input_bytes);
      }
    }
    if (!training_) {
      // Input and output of one unit.
      b_.input_ring = AddMany(BufferKind::kInput, 2, input_bytes);
      b_.shared_saved =
          Add(BufferKind::kSaved, 0,
              BlockSavedBytes(spec_, tokens_, dtype_) + BlockRemadeBytes(spec_, tokens_, dtype_));
      Head();
      return;
    }
    bool remade = false, shared = false;
    for (int64_t pass = 0; pass < passes_.passes(); ++pass) {
      const bool offloaded = !plan_.unified && pass < plan_.offloaded_passes;
      b_.inputs.push_back(offloaded ? kNone : Add(BufferKind::kInput, pass, input_bytes));
      b_.host_inputs.push_back(offloaded ? Add(BufferKind::kHostInput, pass, input_bytes) : kNone);
      const KeepLevel keep = KeepOf(plan_, passes_, pass);
      size_t bytes = BlockSavedBytes(spec_, tokens_, dtype_);
      if (keep == KeepLevel::kKeep) bytes += BlockRemadeBytes(spec_, tokens_, dtype_);
      b_.saved.push_back(keep == KeepLevel::kRecompute ? kNone
                                                       : Add(BufferKind::kSaved, pass, bytes));
      remade = remade || keep == KeepLevel::kSelective;
      shared = shared || keep == KeepLevel::kRecompute;
    }
    if (!plan_.unified && plan_.offloaded_passes > 0) {
      b_.input_ring = AddMany(BufferKind::kInput, group + 1 + kInputsInFlight, input_bytes);
    }
    for (int64_t local = 0; local < group; ++local) {
      b_.head_inputs.push_back(Add(BufferKind::kInput, passes_.passes() + local, input_bytes));
    }
    if (shared) {
      b_.shared_saved =
          Add(BufferKind::kSaved, passes_.passes(),
              BlockSavedBytes(spec_, tokens_, dtype_) + BlockRemadeBytes(spec_, tokens_, dtype_));
    }
    if (remade) {
      b_.remade = Add(BufferKind::kRemade, 0, BlockRemadeBytes(spec_, tokens_, dtype_));
    }
    // Without a link the rows of all micro-batches wait here for the end of the step.
    b_.residual_gradients = AddMany(BufferKind::kResidualGradient,
                                    plan_.unified ? shape_.micro_batches : group, input_bytes);
    b_.block_scratch = Add(BufferKind::kBlockScratch, 0, BlockScratchBytes(spec_, tokens_, dtype_));
    Head();
  }

  void Head() {
    b_.head_scratch = Add(BufferKind::kHeadScratch, 0,
                          HeadScratchBytes(spec_, tokens_, shape_.token_chunk, dtype_));
    if (!TiledHead(plan_)) return;
    b_.head_statistics =
        AddMany(BufferKind::kHeadStatistics, passes_.group, HeadStatisticsBytes(tokens_));
    if (!training_) return;
    b_.hidden_gradients = AddMany(BufferKind::kHiddenGradient, passes_.group,
                                  HeadNormedGradientBytes(spec_, tokens_));
  }

  // Gradients are made in the host's own memory where that is the device's and the type is right.
  void DeviceGradients() {
    const int head = model_.head();
    const DType made = AccumulatorDType(model_, shape_, 1);
    const bool convert = made != model_.gradient_dtypes[1];
    const size_t made_bytes = ElementBytes(BlockCount(), made);
    if (!plan_.unified) {
      const bool in_turn = !convert || passes_.groups > 1;
      b_.accumulators =
          AddMany(BufferKind::kAccumulator, in_turn ? kGradientsInFlight : 1, made_bytes);
      if (convert) {
        b_.converted = AddMany(BufferKind::kConverted, kGradientsInFlight,
                               ElementBytes(BlockCount(), model_.gradient_dtypes[1]));
      }
    } else if (convert && passes_.groups == 1) {
      b_.accumulators = AddMany(BufferKind::kAccumulator, 1, made_bytes);
    }

    const DType head_made = AccumulatorDType(model_, shape_, head);
    const bool head_convert = head_made != model_.gradient_dtypes[head];
    const int64_t head_count = TiledHead(plan_) ? HeadTileOffset(model_) : this->head().count;
    if (!plan_.unified || head_convert) {
      b_.head_accumulator =
          Add(BufferKind::kHeadAccumulator, 0, ElementBytes(head_count, head_made));
    }
    if (!plan_.unified && head_convert) {
      b_.head_converted = Add(BufferKind::kHeadConverted, 0,
                              ElementBytes(head_count, model_.gradient_dtypes[head]));
    }
    const int projection = spec_.tied_embeddings ? 0 : head;
    const DType kept = model_.gradient_dtypes[projection];
    const DType tile_made = spec_.tied_embeddings ? kept : head_made;
    if (TiledHead(plan_)) {
      const int64_t tile = shape_.vocab_tile * spec_.hidden_size;
      if (!plan_.unified || tile_made != kept) {
        b_.tile_accumulators =
            AddMany(BufferKind::kTileAccumulator, tile_made != kept ? 1 : kTilesInFlight,
                    ElementBytes(tile, tile_made));
      }
      if (!plan_.unified && tile_made != kept) {
        b_.tile_converted =
            AddMany(BufferKind::kTileConverted, kTilesInFlight, ElementBytes(tile, kept));
      }
    } else if (spec_.tied_embeddings && !plan_.unified) {
      b_.tied_accumulator =
          Add(BufferKind::kTiedAccumulator, 0, ElementBytes(model_.layouts[0].count, kept));
    }
  }

  const ScheduledModel& model_;
  const ModelSpec& spec_;
  const Plan& plan_;
  const StepShape& shape_;
  const PassShape& passes_;
  const DType dtype_;
  const int64_t tokens_;
  const bool training_;
  Emitter& emitter_;
  StepBuffers b_;
};

}  // namespace

StepBuffers StepBuffers::Make(const ScheduledModel& model, const Plan& plan,
                              const PassShape& passes, bool training, Emitter& emitter) {
  return Maker(model, plan, passes, training, emitter).Make();
}

KeepLevel KeepOf(const Plan& plan, const PassShape& passes, int64_t pass) {
  const int64_t from_end = passes.passes() - 1 - pass;
  if (from_end < plan.kept_passes) return KeepLevel::kKeep;
  return from_end < plan.kept_passes + plan.selective_passes ? KeepLevel::kSelective
                                                             : KeepLevel::kRecompute;
}

PassShape PassesOf(const ScheduledModel& model, const Plan& plan) {
  const bool batch_major = plan.order == Order::kBatchMajor;
  return {.groups = batch_major ? plan.shape.micro_batches : 1,
          .group = batch_major ? 1 : plan.shape.micro_batches,
          .blocks = model.num_blocks()};
}

bool TiledHead(const Plan& plan) { return plan.head == HeadPlacement::kTiled; }

int64_t HeadTileOffset(const ScheduledModel& model) {
  const TensorLayout* projection = model.layouts.back().Find(TensorRole::kOutputProjection);
  return projection == nullptr ? model.layouts.back().count : projection->offset;
}

}  // namespace millrace
