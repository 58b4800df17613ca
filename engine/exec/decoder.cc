#include "engine/exec/decoder.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/aligned_buffer.h"
#include "engine/base/status_macros.h"
#include "engine/exec/cache_rows.h"
#include "engine/exec/weight_slots.h"
#include "engine/model/block.h"
#include "engine/model/carver.h"
#include "engine/model/head.h"
#include "engine/model/rotary_tables.h"
#include "engine/ops/embedding.h"
#include "engine/schedule/step_shape.h"

namespace millrace {
namespace {

// Where everything lies in the device's memory; with no memory, how much of it there must be.
struct Layout {
  Layout(const ModelSpec& spec, absl::Span<const SlabLayout> layouts, DType dtype, bool unified,
         const DecoderLimits& limits, size_t ops_workspace_bytes, std::byte* memory) {
    const size_t size = SizeOf(dtype);
    const int64_t tokens = limits.pass_tokens, sequences = limits.sequences;
    Carver carver(memory);
    auto end_of = [&, begin = size_t{0}](const char* purpose) mutable {
      items.push_back({purpose, carver.used() - std::exchange(begin, carver.used())});
    };
    const int64_t cache = spec.num_layers * limits.cache_tokens * spec.kv_size();
    keys = carver.Take(cache, size);
    values = carver.Take(cache, size);
    end_of("cache");
    rotary_tables =
        carver.TakeFloats(RotaryTables(spec) * RotaryTableElements(spec, limits.longest_sequence));
    positions = static_cast<int32_t*>(carver.Take(tokens, sizeof(int32_t)));
    x = carver.Take(tokens * spec.hidden_size, size);
    y = carver.Take(tokens * spec.hidden_size, size);
    saved = carver.Take(static_cast<int64_t>(BlockSavedBytes(spec, tokens, dtype)), 1);
    remade = carver.Take(static_cast<int64_t>(BlockRemadeBytes(spec, tokens, dtype)), 1);
    last = carver.Take(sequences * spec.hidden_size, size);
    head_scratch =
        carver.Take(static_cast<int64_t>(HeadScratchBytes(spec, sequences, sequences, dtype)), 1);
    logits = unified ? nullptr : carver.TakeFloats(sequences * spec.vocab_size);
    end_of("activations");
    workspace = carver.Take(static_cast<int64_t>(ops_workspace_bytes), 1);
    end_of("workspace");
    bytes = carver.used();
    if (unified) return;
    for (const SlabLayout& layout : layouts) {
      if (layout.kind == UnitKind::kBlock) {
        slot_bytes = std::max(slot_bytes, ElementBytes(layout.count, dtype));
      }
    }
    slot_bytes = AlignUp(slot_bytes, kSlabAlignment);
    slots = static_cast<std::byte*>(carver.Take(static_cast<int64_t>(2 * slot_bytes), 1));
    final_norm = carver.Take(static_cast<int64_t>(FinalNormBytes(layouts.back(), dtype)), 1);
    end_of("slots");
    bytes = carver.used();
  }

  // The head's slab up to the projection.
  static size_t FinalNormBytes(const SlabLayout& layout, DType dtype) {
    const TensorLayout* projection = layout.Find(TensorRole::kOutputProjection);
    return ElementBytes(projection == nullptr ? layout.count : projection->offset, dtype);
  }

  void *keys, *values;
  float* rotary_tables;
  int32_t* positions;
  void *x, *y, *saved, *remade, *last, *head_scratch;
  float* logits;
  void* workspace;
  std::byte* slots = nullptr;
  void* final_norm = nullptr;
  size_t slot_bytes = 0, bytes = 0;
  std::vector<MemoryItem> items;
};

// The sequence length that rotary tables go by, of a text that has `length` tokens: one number for
// all lengths whose tables are the same.
int64_t RotaryLength(const ModelSpec& spec, int64_t length) {
  int64_t by = 0;
  const auto look_at = [&](const RotaryEmbedding& rotary) {
    if (length <= rotary.original_positions) return;
    if (rotary.scaling == RotaryScaling::kDynamic) by = length;
    if (rotary.scaling == RotaryScaling::kLongRope)
      by = std::max(by, rotary.original_positions + 1);
  };
  look_at(spec.rotary);
  if (spec.window_rotary.has_value()) look_at(*spec.window_rotary);
  return by;
}

// Keys that were cached under the tables of one length do not go with those of the other.
bool InvalidatesKeys(const ModelSpec& spec, int64_t length, int64_t longer) {
  const auto crosses = [&](const RotaryEmbedding& rotary) {
    return rotary.scaling == RotaryScaling::kLongRope && length <= rotary.original_positions &&
           longer > rotary.original_positions;
  };
  return crosses(spec.rotary) || (spec.window_rotary.has_value() && crosses(*spec.window_rotary));
}

class CachingDecoder final : public Decoder {
 public:
  CachingDecoder(const ModelSpec& spec, const HostState* state, Device* device, Ops* ops,
                 ThreadPool* host_pool, const DecoderLimits& limits, Layout layout)
      : spec_(spec),
        state_(*state),
        device_(*device),
        ops_(*ops),
        host_pool_(*host_pool),
        limits_(limits),
        memory_(std::move(layout)),
        dtype_(ops->compute_dtype()),
        compute_(device->CreateStream("compute")),
        slots_(device, compute_.get(), memory_.slots, memory_.slot_bytes),
        rows_(limits.cache_tokens) {}

  absl::Status Prepare(size_t workspace_bytes) {
    ops_.SetWorkspace(memory_.workspace, workspace_bytes);
    rotary_tables_.resize(static_cast<size_t>(
        RotaryTables(spec_) * RotaryTableElements(spec_, limits_.longest_sequence)));
    if (device_.unified()) return absl::OkStatus();
    MILLRACE_ASSIGN_OR_RETURN(
        embedded_,
        AlignedBuffer::Allocate(ElementBytes(limits_.pass_tokens * spec_.hidden_size, dtype_),
                                "embeddings"));
    device_.CopyToDevice(*compute_, memory_.final_norm, state_.StreamedWeights(head_unit()),
                         Layout::FinalNormBytes(head(), dtype_));
    return compute_->Synchronize();
  }

  absl::StatusOr<int64_t> Begin(int64_t capacity) override {
    if (capacity < 1 || capacity > limits_.longest_sequence || capacity > limits_.cache_tokens) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a text has between 1 and ", std::min(limits_.longest_sequence, limits_.cache_tokens),
          " tokens here, not ", capacity));
    }
    const std::optional<int64_t> begin = static_cast<int64_t>(sequences_.size()) < limits_.sequences
                                             ? rows_.Take(capacity)
                                             : std::nullopt;
    if (!begin) return absl::ResourceExhaustedError("no place for another text in the cache");
    sequences_[*begin].capacity = capacity;
    return *begin;
  }

  void End(int64_t sequence) override {
    sequences_.erase(sequence);
    rows_.Give(sequence);
  }

  absl::Status Run(absl::Span<const Feed> feeds, absl::Span<float> logits,
                   const std::atomic<bool>* cancelled) override {
    if (logits.size() != feeds.size() * static_cast<size_t>(spec_.vocab_size)) {
      return absl::InvalidArgumentError("logits must have the vocabulary's size for each feed");
    }
    std::vector<size_t> left;
    for (size_t i = 0; i < feeds.size(); ++i) {
      MILLRACE_RETURN_IF_ERROR(Take(feeds[i]));
      left.push_back(i);
    }
    while (!left.empty()) {
      Pass pass;
      for (size_t i : left) AddPiece(feeds[i].sequence, i, &pass);
      absl::Status status = Issue(pass, logits, cancelled);
      // Also after an error: what is in flight reads `pass`.
      status.Update(slots_.Synchronize());
      status.Update(compute_->Synchronize());
      MILLRACE_RETURN_IF_ERROR(status);
      for (const Piece& piece : pass.pieces) {
        sequences_[piece.sequence].cached += piece.tokens;
        if (piece.last) left.erase(std::find(left.begin(), left.end(), piece.feed));
      }
    }
    return absl::OkStatus();
  }

 private:
  struct Sequence {
    int64_t capacity = 0;
    std::vector<int32_t> tokens;  // all that were fed
    int64_t cached = 0;           // of them
  };
  // Tokens of one sequence in one pass.
  struct Piece {
    int64_t sequence;
    size_t feed;
    int64_t tokens;
    bool last;  // of the feed
  };
  struct Pass {
    std::vector<Piece> pieces;
    std::vector<int32_t> inputs, positions, boundaries = {0};
    std::vector<int64_t> key_begin, key_count;
    int64_t rotary_length = 0;

    int64_t tokens() const { return static_cast<int64_t>(inputs.size()); }
  };

  int head_unit() const { return state_.num_units() - 1; }
  const SlabLayout& head() const { return state_.layout(head_unit()); }

  absl::Status Take(const Feed& feed) {
    const auto found = sequences_.find(feed.sequence);
    if (found == sequences_.end() || feed.tokens.empty()) {
      return absl::InvalidArgumentError("a text that has begun and at least one token are needed");
    }
    Sequence& sequence = found->second;
    const auto length = static_cast<int64_t>(sequence.tokens.size());
    const int64_t longer = length + static_cast<int64_t>(feed.tokens.size());
    if (longer > sequence.capacity) {
      return absl::InvalidArgumentError(absl::StrCat("a text of ", longer,
                                                     " tokens is longer than the ",
                                                     sequence.capacity, " that it was begun for"));
    }
    sequence.tokens.insert(sequence.tokens.end(), feed.tokens.begin(), feed.tokens.end());
    if (InvalidatesKeys(spec_, length, longer)) sequence.cached = 0;
    return absl::OkStatus();
  }

  // As much of what a sequence has not cached as the pass has room for.
  void AddPiece(int64_t id, size_t feed, Pass* pass) const {
    const Sequence& sequence = sequences_.at(id);
    const auto length = static_cast<int64_t>(sequence.tokens.size());
    const int64_t rotary_length = RotaryLength(spec_, length);
    if (pass->pieces.empty()) pass->rotary_length = rotary_length;
    if (pass->rotary_length != rotary_length) return;
    const int64_t count = std::min(length - sequence.cached, limits_.pass_tokens - pass->tokens());
    if (count == 0) return;
    const int64_t end = sequence.cached + count;
    for (int64_t position = sequence.cached; position < end; ++position) {
      pass->inputs.push_back(sequence.tokens[static_cast<size_t>(position)]);
      pass->positions.push_back(static_cast<int32_t>(position));
    }
    pass->boundaries.push_back(static_cast<int32_t>(pass->tokens()));
    pass->key_begin.push_back(id);
    pass->key_count.push_back(end);
    pass->pieces.push_back({id, feed, count, end == length});
  }

  // Enqueues all that a pass does.
  absl::Status Issue(const Pass& pass, absl::Span<float> logits,
                     const std::atomic<bool>* cancelled) {
    const auto check = [cancelled]() -> absl::Status {
      return cancelled != nullptr && cancelled->load(std::memory_order_acquire)
                 ? absl::CancelledError("cancelled")
                 : absl::OkStatus();
    };
    MILLRACE_RETURN_IF_ERROR(check());
    PlaceRotaryTables(pass.rotary_length);
    device_.CopyToDevice(*compute_, memory_.positions, pass.positions.data(),
                         pass.positions.size() * sizeof(int32_t));
    MILLRACE_RETURN_IF_ERROR(Embed(pass));

    const KeyValueCache cache{.keys = memory_.keys,
                              .values = memory_.values,
                              .rows = limits_.cache_tokens,
                              .key_begin = pass.key_begin,
                              .key_count = pass.key_count};
    const PassContext context = ContextOf(pass, &cache);
    void *x = memory_.x, *y = memory_.y;
    for (int unit = 1; unit < head_unit(); ++unit) {
      // All of a pass may be in the queues long before it is done.
      compute_->RunOnHost(check);
      BlockForward(context, state_.layout(unit),
                   slots_.Bring(state_.StreamedWeights(unit), state_.StreamedBytes(unit)), x,
                   memory_.saved, memory_.remade, y);
      slots_.Release();
      std::swap(x, y);
    }
    compute_->RunOnHost(check);
    Head(pass, context, x, logits);
    // The cache is on this stack.
    return compute_->Synchronize();
  }

  void PlaceRotaryTables(int64_t rotary_length) {
    if (rotary_tables_.empty() || placed_rotary_length_ == rotary_length) return;
    FillRotaryTables(spec_, rotary_length, limits_.longest_sequence, rotary_tables_.data());
    device_.CopyToDevice(*compute_, memory_.rotary_tables, rotary_tables_.data(),
                         rotary_tables_.size() * sizeof(float));
    placed_rotary_length_ = rotary_length;
  }

  absl::Status Embed(const Pass& pass) {
    const void* slab = state_.StreamedWeights(0);
    const SlabLayout& layout = state_.layout(0);
    void* const rows = device_.unified() ? memory_.x : embedded_.data();
    MILLRACE_RETURN_IF_ERROR(GatherEmbeddings(
        {.inputs = pass.inputs,
         .positions = pass.positions,
         .hidden = spec_.hidden_size,
         .vocab = spec_.vocab_size,
         .max_positions = spec_.max_positions,
         .dtype = dtype_,
         .scale = spec_.embedding_scale,
         .token_table = BindTensor(layout, slab, dtype_, TensorRole::kTokenEmbedding),
         .position_table = BindTensor(layout, slab, dtype_, TensorRole::kPositionEmbedding),
         .y = rows},
        host_pool_));
    if (!device_.unified()) {
      device_.CopyToDevice(*compute_, memory_.x, rows,
                           ElementBytes(pass.tokens() * spec_.hidden_size, dtype_));
    }
    return absl::OkStatus();
  }

  PassContext ContextOf(const Pass& pass, const KeyValueCache* cache) const {
    const int tables = RotaryTables(spec_);
    return {.spec = spec_,
            .ops = ops_,
            .stream = *compute_,
            .tokens = pass.tokens(),
            .boundaries = pass.boundaries,
            .positions = memory_.positions,
            .rotary_table = tables > 0 ? memory_.rotary_tables : nullptr,
            .window_rotary_table =
                tables > 1
                    ? memory_.rotary_tables + RotaryTableElements(spec_, limits_.longest_sequence)
                    : nullptr,
            .cache = cache};
  }

  // Logits of the last tokens alone, brought side by side.
  void Head(const Pass& pass, const PassContext& context, const void* x, absl::Span<float> logits) {
    std::vector<size_t> feeds;
    for (size_t i = 0; i < pass.pieces.size(); ++i) {
      if (!pass.pieces[i].last) continue;
      ops_.Run(*compute_, CopyRows{.rows = 1,
                                   .width = spec_.hidden_size,
                                   .source = Row(const_cast<void*>(x), pass.boundaries[i + 1] - 1),
                                   .source_stride = spec_.hidden_size,
                                   .target = Row(memory_.last, static_cast<int64_t>(feeds.size())),
                                   .target_stride = spec_.hidden_size});
      feeds.push_back(pass.pieces[i].feed);
    }
    if (feeds.empty()) return;
    // Rows of feeds that follow each other are made in their place.
    const auto vocab = static_cast<size_t>(spec_.vocab_size);
    float* const target = device_.unified() && feeds.back() - feeds.front() + 1 == feeds.size()
                              ? logits.data() + feeds.front() * vocab
                              : Logits(feeds.size() * vocab);
    Project(context, static_cast<int64_t>(feeds.size()), target);
    for (size_t i = 0; i < feeds.size(); ++i) {
      device_.CopyToHost(*compute_, logits.data() + feeds[i] * vocab, target + i * vocab,
                         vocab * sizeof(float));
    }
  }

  float* Logits(size_t count) {
    if (!device_.unified()) return memory_.logits;
    logits_.resize(std::max(logits_.size(), count));
    return logits_.data();
  }

  void Project(const PassContext& context, int64_t rows, float* logits) {
    const bool unified = device_.unified();
    const int unit = spec_.tied_embeddings ? 0 : head_unit();
    const auto* projection = static_cast<const std::byte*>(BindTensor(
        state_.layout(unit), state_.StreamedWeights(unit), dtype_,
        spec_.tied_embeddings ? TensorRole::kTokenEmbedding : TensorRole::kOutputProjection));
    const HeadWeights weights{
        .layout = head(),
        .slab = unified ? state_.StreamedWeights(head_unit()) : memory_.final_norm};
    const size_t class_bytes = ElementBytes(spec_.hidden_size, dtype_);
    const int64_t most =
        unified ? spec_.vocab_size : static_cast<int64_t>(memory_.slot_bytes / class_bytes);
    for (int64_t first = 0; first < spec_.vocab_size; first += most) {
      const int64_t count = std::min(most, spec_.vocab_size - first);
      const void* tile = slots_.Bring(projection + static_cast<size_t>(first) * class_bytes,
                                      static_cast<size_t>(count) * class_bytes);
      HeadLogits(context, weights, {first, count, tile}, memory_.last, 0, rows,
                 memory_.head_scratch, logits);
      slots_.Release();
    }
  }

  void* Row(void* rows, int64_t row) const {
    return static_cast<std::byte*>(rows) + ElementBytes(row * spec_.hidden_size, dtype_);
  }

  const ModelSpec& spec_;
  const HostState& state_;
  Device& device_;
  Ops& ops_;
  ThreadPool& host_pool_;
  const DecoderLimits limits_;
  const Layout memory_;
  const DType dtype_;
  std::unique_ptr<Stream> compute_;
  WeightSlots slots_;
  CacheRows rows_;
  std::map<int64_t, Sequence> sequences_;  // by their first row
  std::vector<float> rotary_tables_;
  int64_t placed_rotary_length_ = -1;
  AlignedBuffer embedded_;
  std::vector<float> logits_;
};

}  // namespace

OpsLimits MakeOpsLimits(const ModelSpec& spec, const DecoderLimits& limits) {
  return MakeOpsLimits(spec, StepShape{.tokens_per_micro_batch = limits.pass_tokens,
                                       .longest_document = limits.longest_sequence,
                                       .token_chunk = 1,
                                       .vocab_tile = 1});
}

std::vector<MemoryItem> DecoderMemory(const ModelSpec& spec, absl::Span<const SlabLayout> layouts,
                                      DType compute_dtype, bool unified,
                                      const DecoderLimits& limits, size_t ops_workspace_bytes) {
  return Layout(spec, layouts, compute_dtype, unified, limits, ops_workspace_bytes, nullptr).items;
}

absl::StatusOr<std::unique_ptr<Decoder>> Decoder::Create(const ModelSpec& spec,
                                                         const HostState* state, Device* device,
                                                         Ops* ops, ThreadPool* host_pool,
                                                         const DecoderLimits& limits) {
  if (limits.longest_sequence > spec.max_positions) {
    return absl::InvalidArgumentError(absl::StrCat("texts of ", limits.longest_sequence,
                                                   " tokens are longer than the model's ",
                                                   spec.max_positions, " positions"));
  }
  const size_t workspace_bytes = ops->WorkspaceBytes(MakeOpsLimits(spec, limits));
  Layout layout(spec, state->layouts(), ops->compute_dtype(), device->unified(), limits,
                workspace_bytes, device->memory());
  if (layout.bytes > device->memory_bytes()) {
    return absl::ResourceExhaustedError(absl::StrCat("a decoder needs ", layout.bytes,
                                                     " bytes of device memory, of which there are ",
                                                     device->memory_bytes()));
  }
  auto decoder = std::make_unique<CachingDecoder>(spec, state, device, ops, host_pool, limits,
                                                  std::move(layout));
  MILLRACE_RETURN_IF_ERROR(decoder->Prepare(workspace_bytes));
  return decoder;
}

}  // namespace millrace
