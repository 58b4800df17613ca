#include "engine/schedule/cost.h"

#include <algorithm>

#include "engine/model/model_spec.h"
#include "engine/schedule/needed_flops.h"
#include "engine/state/host_state.h"

namespace millrace {
namespace {

double Real(int64_t value) { return static_cast<double>(value); }

}  // namespace

absl::string_view NameOf(Resource resource) {
  switch (resource) {
    case Resource::kDevice:
      return "device";
    case Resource::kToDevice:
      return "to_device";
    case Resource::kToHost:
      return "to_host";
    case Resource::kLink:
      return "link";
    case Resource::kHostMemory:
      return "host_memory";
    case Resource::kHostCores:
      return "host_cores";
  }
  return "unknown";
}

double Work::alone() const { return latency + *std::max_element(seconds.begin(), seconds.end()); }

UpdateWork UpdateWorkOf(absl::Span<const SlabLayout> layouts, Recipe recipe, DType compute,
                        OptimizerKind optimizer) {
  double parameters = 0, state = 0;
  for (const SlabLayout& layout : layouts) parameters += Real(layout.count);
  for (const MemoryPool& pool : HostStateMemory(layouts, recipe, compute, optimizer)) {
    state += Real(pool.bytes);
  }
  return {.bytes = 2 * state / parameters + static_cast<double>(SizeOf(compute)),
          .quantized = HasQuantizedMoments(recipe)};
}

CostModel::CostModel(const ScheduledModel& model, const Plan& plan, const DeviceProfile& profile,
                     const UpdateWork& update)
    : model_(model),
      plan_(plan),
      profile_(profile),
      update_(update),
      tokens_(Real(plan.shape.tokens_per_micro_batch)),
      size_(static_cast<double>(SizeOf(model.compute_dtype))),
      blocks_{WorkOfBlock(0), WorkOfBlock(model.spec.window)} {}

Work CostModel::Of(const Instruction& instruction) const {
  const bool accumulate = !instruction.first_gradient;
  const Resource up = Resource::kToDevice, down = Resource::kToHost;
  const auto block = [&]() -> const BlockWork& {
    return blocks_[model_.spec.HasWindow(instruction.unit - 1)];
  };
  switch (instruction.opcode) {
    case Opcode::kUpload:
      return Copy(up, Real(Count(instruction)) * size_);
    case Opcode::kUploadRows:
    case Opcode::kFetchInput:
      return Copy(up, TokenRowBytes());
    case Opcode::kFetchAccumulator:
      return Copy(up, Real(Count(instruction)) * sizeof(float));
    case Opcode::kOffloadInput:
    case Opcode::kDownloadRows:
      return Copy(down, TokenRowBytes());
    case Opcode::kOffloadAccumulator:
      return Copy(down, Real(Count(instruction)) * sizeof(float));
    case Opcode::kDownloadGradient:
      return Copy(down, GradientBytes(instruction));
    case Opcode::kBlockForward:
      return block().forward;
    case Opcode::kBlockRecompute:
      return block().recompute;
    case Opcode::kBlockRemake:
      return BlockRemake();
    case Opcode::kBlockBackward:
      return block().backward[accumulate];
    case Opcode::kHead:
      return WholeHead(true);
    case Opcode::kHeadEvaluate:
      return WholeHead(false);
    case Opcode::kHeadStatistics:
      return HeadTile(false, instruction.count);
    case Opcode::kHeadTileGradient:
      return HeadTile(true, instruction.count);
    case Opcode::kHeadInputGradient:
      return HeadNormGradient();
    case Opcode::kConvertGradient:
      return Convert(Count(instruction), model_.gradient_dtypes[instruction.unit]);
    case Opcode::kUpdate:
      return Update(model_.layouts[instruction.unit].count);
    case Opcode::kEmbedGather:
      return HostPassOver(HostPass::kGather, 2 * TokenRowBytes());
    case Opcode::kEmbedScatter:
      // Each row is read, and its place in the f32 table read and written.
      return HostPassOver(HostPass::kScatter, TokenRowBytes() * (1 + 8 / size_));
    case Opcode::kClearEmbeddingGradient:
      return model_.spec.tied_embeddings
                 ? Work{}
                 : HostPassOver(HostPass::kClear, GradientBytes(instruction));
    case Opcode::kGradientNorm:
      return HostPassOver(HostPass::kGradientNorm, GradientBytes(instruction));
  }
  return {};
}

int64_t CostModel::Count(const Instruction& instruction) const {
  return instruction.count > 0 ? instruction.count : model_.layouts[instruction.unit].count;
}

double CostModel::GradientBytes(const Instruction& instruction) const {
  return Real(Count(instruction)) *
         static_cast<double>(SizeOf(model_.gradient_dtypes[instruction.unit]));
}

double CostModel::TokenRowBytes() const { return tokens_ * Real(model_.spec.hidden_size) * size_; }

// --- Ops
// ------------------------------------------------------------------------------------------

void CostModel::Product(ProductKind kind, int64_t in, int64_t out, DeviceOps& ops) const {
  const double flops = 2 * tokens_ * Real(in) * Real(out);
  ops.flops += flops;
  ops.bytes += (tokens_ * Real(in + out) + Real(in) * Real(out)) * size_;
  ops.seconds += flops / profile_.product(kind).At({tokens_, Real(in), Real(out)}) +
                 profile_.op_overhead_seconds;
}

void CostModel::Pass(DevicePass pass, double bytes, DeviceOps& ops) const {
  ops.bytes += bytes;
  ops.seconds +=
      bytes / profile_.pass_bandwidth[static_cast<size_t>(pass)] + profile_.op_overhead_seconds;
}

void CostModel::Attention(bool backward, int64_t window, DeviceOps& ops) const {
  const ModelSpec& spec = model_.spec;
  const int64_t document = std::min(plan_.shape.longest_document, static_cast<int64_t>(tokens_));
  // A window's queries see as many keys as those of a document of twice its length.
  const int64_t alike = window > 0 ? std::min(2 * window, document) : document;
  const double pairs = AttentionPairsInDocuments(tokens_, document, window);
  const double flops = (backward ? 8 : 4) * Real(spec.query_size()) * pairs;
  const RateGrid& rate = backward ? profile_.attention_backward : profile_.attention_forward;
  ops.flops += flops;
  ops.bytes += tokens_ * Real(spec.qkv_size() + spec.query_size()) * size_ * (backward ? 2 : 1);
  ops.seconds += flops / rate.At({Real(alike), Real(spec.head_dim)}) + profile_.op_overhead_seconds;
  Softcap(spec.attention_softcap, pairs * Real(spec.num_heads), ops);
}

void CostModel::Softcap(double cap, double scores, DeviceOps& ops) const {
  if (cap > 0) ops.seconds += scores / profile_.softcap_rate;
}

void CostModel::Norm(DeviceOps& ops) const {
  Pass(DevicePass::kNormForward, 2 * TokenRowBytes(), ops);
}

// What a product adds to its result on the way out.
void CostModel::Residual(DeviceOps& ops) const {
  const double bytes = TokenRowBytes();
  ops.bytes += bytes;
  ops.seconds += bytes / profile_.pass_bandwidth[static_cast<size_t>(DevicePass::kNormForward)];
}

void CostModel::QueryKeyNorms(bool backward, DeviceOps& ops) const {
  if (model_.spec.query_key_norm == QueryKeyNorm::kNone) return;
  const double bytes = tokens_ * Real(model_.spec.query_size() + model_.spec.kv_size()) * size_;
  Pass(backward ? DevicePass::kNormBackward : DevicePass::kNormForward, (backward ? 3 : 2) * bytes,
       ops);
}

// `residual`: the gradient is added to what is there.
void CostModel::NormBackward(bool residual, DeviceOps& ops) const {
  Pass(DevicePass::kNormBackward, (residual ? 4 : 3) * TokenRowBytes(), ops);
}

// Of a half of the block, through the norm before it where there is one.
void CostModel::InputGradient(DeviceOps& ops) const {
  if (model_.spec.norm_before) return NormBackward(true, ops);
  Pass(DevicePass::kNormForward, 3 * TokenRowBytes(), ops);
}

void CostModel::Rotate(DeviceOps& ops) const {
  if (model_.spec.position != PositionKind::kRotary) return;
  const int64_t columns =
      (model_.spec.num_heads + model_.spec.num_kv_heads) * model_.spec.rotary_width;
  Pass(DevicePass::kRotary, 2 * tokens_ * Real(columns) * size_, ops);
}

void CostModel::ActivationForward(DeviceOps& ops) const {
  const int64_t columns = model_.spec.mlp_in_size() + model_.spec.intermediate_size;
  Pass(DevicePass::kActivationForward, tokens_ * Real(columns) * size_, ops);
}

void CostModel::LinearBackward(int64_t in, int64_t out, bool bias, bool accumulate,
                               DeviceOps& ops) const {
  Product(ProductKind::kInputGradient, in, out, ops);
  Product(ProductKind::kWeightGradient, in, out, ops);
  if (accumulate) Pass(DevicePass::kAccumulate, 8 * Real(in) * Real(out), ops);
  if (bias) Pass(DevicePass::kNormBackward, tokens_ * Real(out) * size_, ops);
}

// The products with the vocabulary, and all that is done to logits.
void CostModel::Head(const RateGrid& rate, double flops_a_logit, int64_t classes,
                     DeviceOps& ops) const {
  const int64_t hidden = model_.spec.hidden_size;
  const int64_t chunk =
      plan_.shape.token_chunk > 0 ? plan_.shape.token_chunk : plan_.shape.tokens_per_micro_batch;
  const double flops = flops_a_logit * tokens_ * Real(hidden) * Real(classes);
  ops.flops += flops;
  ops.bytes += Real(hidden) * Real(classes) * size_;
  ops.seconds += flops / rate.At({std::min(tokens_, Real(chunk)), Real(hidden)}) +
                 3 * profile_.op_overhead_seconds;
  Softcap(model_.spec.logit_softcap, tokens_ * Real(classes), ops);
}

// --- Units
// ----------------------------------------------------------------------------------------

CostModel::BlockWork CostModel::WorkOfBlock(int64_t window) const {
  return {.forward = BlockForward(window, true),
          .recompute = BlockForward(window, false),
          .backward = {BlockBackward(window, false), BlockBackward(window, true)}};
}

Work CostModel::BlockForward(int64_t window, bool with_output) const {
  const ModelSpec& spec = model_.spec;
  DeviceOps ops;
  // A product whose result is added to the residual, after a norm where there is one.
  const auto output = [&](int64_t in, bool needed) {
    if (!needed && !spec.norm_after) return;
    Product(ProductKind::kForward, in, spec.hidden_size, ops);
    if (spec.norm_after) Norm(ops);
    Residual(ops);
  };
  if (spec.norm_before) Norm(ops);
  Product(ProductKind::kForward, spec.hidden_size, spec.qkv_size(), ops);
  QueryKeyNorms(false, ops);
  Rotate(ops);
  Attention(false, window, ops);
  output(spec.query_size(), with_output || !spec.parallel_residual);
  if (spec.norm_before) Norm(ops);
  Product(ProductKind::kForward, spec.hidden_size, spec.mlp_in_size(), ops);
  ActivationForward(ops);
  output(spec.intermediate_size, with_output);
  return OnDevice(ops);
}

Work CostModel::BlockRemake() const {
  const ModelSpec& spec = model_.spec;
  DeviceOps ops;
  for (bool norms : {spec.norm_before, spec.norm_after}) {
    if (!norms) continue;
    Norm(ops);
    Norm(ops);
  }
  if (spec.query_key_norm != QueryKeyNorm::kNone) {
    QueryKeyNorms(false, ops);
    Rotate(ops);
  }
  ActivationForward(ops);
  return OnDevice(ops);
}

Work CostModel::BlockBackward(int64_t window, bool accumulate) const {
  const ModelSpec& spec = model_.spec;
  DeviceOps ops;
  if (spec.norm_after) NormBackward(false, ops);
  LinearBackward(spec.intermediate_size, spec.hidden_size, spec.mlp_bias, accumulate, ops);
  Pass(DevicePass::kActivationBackward,
       tokens_ * Real(2 * spec.mlp_in_size() + spec.intermediate_size) * size_, ops);
  LinearBackward(spec.hidden_size, spec.mlp_in_size(), spec.mlp_bias, accumulate, ops);
  InputGradient(ops);
  if (spec.norm_after) NormBackward(false, ops);
  LinearBackward(spec.query_size(), spec.hidden_size, spec.attention_output_bias, accumulate, ops);
  Attention(true, window, ops);
  Rotate(ops);
  QueryKeyNorms(true, ops);
  LinearBackward(spec.hidden_size, spec.qkv_size(), spec.attention_bias, accumulate, ops);
  InputGradient(ops);
  return OnDevice(ops);
}

Work CostModel::WholeHead(bool backward) const {
  const int64_t vocab = model_.spec.vocab_size;
  DeviceOps ops;
  Norm(ops);
  if (!backward) {
    Head(profile_.head_statistics, 2, vocab, ops);
  } else if (plan_.shape.vocab_tile == 0) {
    Head(profile_.head, 6, vocab, ops);
  } else {
    // Logits of a tile are made for the statistics, and again for the gradients.
    Head(profile_.head_statistics, 2, vocab, ops);
    Head(profile_.head_gradient, 6, vocab, ops);
  }
  if (backward) NormBackward(false, ops);
  return OnDevice(ops);
}

Work CostModel::HeadTile(bool backward, int64_t classes) const {
  DeviceOps ops;
  Norm(ops);
  if (backward) {
    Head(profile_.head_gradient, 6, classes, ops);
  } else {
    Head(profile_.head_statistics, 2, classes, ops);
  }
  return OnDevice(ops);
}

Work CostModel::HeadNormGradient() const {
  DeviceOps ops;
  Norm(ops);
  NormBackward(false, ops);
  return OnDevice(ops);
}

Work CostModel::Convert(int64_t count, DType kept) const {
  DeviceOps ops;
  Pass(DevicePass::kConvert, Real(count) * static_cast<double>(sizeof(float) + SizeOf(kept)), ops);
  return OnDevice(ops);
}

Work CostModel::OnDevice(const DeviceOps& ops) const {
  Work work;
  work.flops = ops.flops;
  work[Resource::kDevice] = ops.seconds;
  if (profile_.cpu) {
    work[Resource::kHostCores] = ops.seconds;
    work[Resource::kHostMemory] = std::min(ops.seconds, ops.bytes / profile_.host.memory_bandwidth);
  }
  return work;
}

// --- Host and link
// --------------------------------------------------------------------------------

Work CostModel::Copy(Resource direction, double bytes) const {
  Work work;
  if (plan_.unified) return work;
  const LinkProfile& link = profile_.link;
  const double rate = direction == Resource::kToDevice ? link.to_device : link.to_host;
  work.latency = link.latency_seconds;
  work[direction] = bytes / rate;
  work[Resource::kLink] = bytes / link.both_ways;
  work[Resource::kHostMemory] = bytes / profile_.host.memory_bandwidth;
  if (profile_.cpu) {
    // A thread copies: what it reads, it writes to the same memory.
    work[direction] = std::max(work[direction], bytes / profile_.copy_bandwidth);
    work[Resource::kHostMemory] *= 2;
    work[Resource::kHostCores] = bytes / profile_.copy_bandwidth / profile_.host.cores;
  }
  return work;
}

Work CostModel::HostPassOver(HostPass pass, double bytes) const {
  const HostProfile& host = profile_.host;
  Work work;
  work[Resource::kHostMemory] = bytes / host.memory_bandwidth;
  work[Resource::kHostCores] =
      bytes / host.pass_core_bandwidth[static_cast<size_t>(pass)] / host.cores;
  return work;
}

Work CostModel::Update(int64_t count) const {
  const HostProfile& host = profile_.host;
  Work work;
  work[Resource::kHostMemory] = Real(count) * update_.bytes / host.memory_bandwidth;
  work[Resource::kHostCores] =
      Real(count) *
      (update_.quantized ? host.update.quantized_core_seconds : host.update.plain_core_seconds) /
      host.cores;
  return work;
}

}  // namespace millrace
