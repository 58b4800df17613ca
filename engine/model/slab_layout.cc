#include "engine/model/slab_layout.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "engine/model/tensor_names.h"

namespace millrace {
namespace {

constexpr int64_t kTensorAlignment = 32;    // elements
constexpr int64_t kSlabGranularity = 2048;  // elements

// Adds tensors to one slab, one after the other.
class SlabBuilder {
 public:
  SlabBuilder(const ModelSpec& spec, UnitKind kind, int64_t index) : spec_(spec) {
    slab_.kind = kind;
    slab_.index = index;
  }

  void AddMatrix(TensorRole role, const std::vector<int64_t>& part_rows, int64_t columns) {
    Add(role, role, ".weight", part_rows, columns, /*decay=*/true);
  }
  // The bias beside the matrix `module`.
  void AddBias(TensorRole role, TensorRole module, const std::vector<int64_t>& part_rows) {
    Add(role, module, ".bias", part_rows, 1, /*decay=*/false);
  }
  void AddVector(TensorRole role, int64_t width) {
    Add(role, role, ".weight", {width}, 1, /*decay=*/false);
  }
  void AddNorm(TensorRole role, TensorRole bias_role) {
    AddVector(role, spec_.hidden_size);
    if (spec_.norm_bias) AddBias(bias_role, role, {spec_.hidden_size});
  }

  SlabLayout Finish() {
    slab_.count = RoundUp(end_, kSlabGranularity);
    return std::move(slab_);
  }

 private:
  static int64_t RoundUp(int64_t value, int64_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
  }

  void Add(TensorRole role, TensorRole module, absl::string_view suffix,
           const std::vector<int64_t>& part_rows, int64_t columns, bool decay) {
    const ModuleNames& names = ModuleNamesOf(spec_.model_type, module);
    TensorLayout tensor{role, 0, columns, RoundUp(end_, kTensorAlignment), decay, {}};
    const bool transposed = names.transposed && IsMatrix(role);
    for (int64_t rows : part_rows) tensor.rows += rows;
    if (names.order == RowOrder::kByHead) {
      tensor.parts = PartsByHead(FullName(names.names.front(), suffix));
    } else if (names.names.size() == part_rows.size()) {
      int64_t first_row = 0;
      for (size_t i = 0; i < part_rows.size(); ++i) {
        tensor.parts.push_back(
            {FullName(names.names[i], suffix), first_row, part_rows[i], transposed});
        first_row += part_rows[i];
      }
    } else {
      tensor.parts.push_back({FullName(names.names.back(), suffix), 0, tensor.rows, transposed});
    }
    end_ = tensor.offset + tensor.count();
    slab_.tensors.push_back(std::move(tensor));
  }

  // Of a fused projection with as many key/value heads as heads.
  std::vector<TensorPart> PartsByHead(const std::string& name) const {
    std::vector<TensorPart> parts;
    for (int64_t kind = 0; kind < 3; ++kind) {
      for (int64_t head = 0; head < spec_.num_heads; ++head) {
        parts.push_back({.name = name,
                         .first_row = kind * spec_.query_size() + head * spec_.head_dim,
                         .rows = spec_.head_dim,
                         .row_in_file = (3 * head + kind) * spec_.head_dim,
                         .rows_in_file = 3 * spec_.query_size()});
      }
    }
    return parts;
  }

  std::string FullName(absl::string_view name, absl::string_view suffix) const {
    return absl::StrCat(absl::StrReplaceAll(name, {{"{}", absl::StrCat(slab_.index - 1)}}), suffix);
  }

  const ModelSpec& spec_;
  SlabLayout slab_;
  int64_t end_ = 0;
};

SlabLayout MakeEmbedding(const ModelSpec& spec) {
  SlabBuilder slab(spec, UnitKind::kEmbedding, 0);
  slab.AddMatrix(TensorRole::kTokenEmbedding, {spec.vocab_size}, spec.hidden_size);
  if (spec.position == PositionKind::kLearned) {
    slab.AddMatrix(TensorRole::kPositionEmbedding, {spec.max_positions}, spec.hidden_size);
  }
  return slab.Finish();
}

SlabLayout MakeBlock(const ModelSpec& spec, int64_t index) {
  const std::vector<int64_t> qkv = {spec.query_size(), spec.kv_size(), spec.kv_size()};
  const std::vector<int64_t> mlp_in(spec.gated_mlp ? 2 : 1, spec.intermediate_size);
  const std::vector<int64_t> hidden = {spec.hidden_size};

  SlabBuilder slab(spec, UnitKind::kBlock, index);
  if (spec.norm_before) slab.AddNorm(TensorRole::kAttentionNorm, TensorRole::kAttentionNormBias);
  slab.AddMatrix(TensorRole::kQkv, qkv, spec.hidden_size);
  if (spec.attention_bias) slab.AddBias(TensorRole::kQkvBias, TensorRole::kQkv, qkv);
  if (spec.query_key_norm != QueryKeyNorm::kNone) {
    const bool whole = spec.query_key_norm == QueryKeyNorm::kWhole;
    slab.AddVector(TensorRole::kQueryNorm, whole ? spec.query_size() : spec.head_dim);
    slab.AddVector(TensorRole::kKeyNorm, whole ? spec.kv_size() : spec.head_dim);
  }
  slab.AddMatrix(TensorRole::kAttentionOutput, hidden, spec.query_size());
  if (spec.attention_output_bias) {
    slab.AddBias(TensorRole::kAttentionOutputBias, TensorRole::kAttentionOutput, hidden);
  }
  if (spec.norm_after) {
    slab.AddNorm(TensorRole::kAttentionPostNorm, TensorRole::kAttentionPostNormBias);
  }
  if (spec.norm_before) slab.AddNorm(TensorRole::kMlpNorm, TensorRole::kMlpNormBias);
  slab.AddMatrix(TensorRole::kMlpIn, mlp_in, spec.hidden_size);
  if (spec.mlp_bias) slab.AddBias(TensorRole::kMlpInBias, TensorRole::kMlpIn, mlp_in);
  slab.AddMatrix(TensorRole::kMlpOut, hidden, spec.intermediate_size);
  if (spec.mlp_bias) slab.AddBias(TensorRole::kMlpOutBias, TensorRole::kMlpOut, hidden);
  if (spec.norm_after) slab.AddNorm(TensorRole::kMlpPostNorm, TensorRole::kMlpPostNormBias);
  return slab.Finish();
}

SlabLayout MakeHead(const ModelSpec& spec) {
  SlabBuilder slab(spec, UnitKind::kHead, spec.num_layers + 1);
  slab.AddNorm(TensorRole::kFinalNorm, TensorRole::kFinalNormBias);
  if (!spec.tied_embeddings) {
    slab.AddMatrix(TensorRole::kOutputProjection, {spec.vocab_size}, spec.hidden_size);
  }
  return slab.Finish();
}

}  // namespace

bool IsMatrix(TensorRole role) {
  switch (role) {
    case TensorRole::kTokenEmbedding:
    case TensorRole::kPositionEmbedding:
    case TensorRole::kQkv:
    case TensorRole::kAttentionOutput:
    case TensorRole::kMlpIn:
    case TensorRole::kMlpOut:
    case TensorRole::kOutputProjection:
      return true;
    default:
      return false;
  }
}

std::vector<SlabLayout> MakeSlabLayouts(const ModelSpec& spec) {
  std::vector<SlabLayout> slabs;
  slabs.push_back(MakeEmbedding(spec));
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
    slabs.push_back(MakeBlock(spec, layer + 1));
  }
  slabs.push_back(MakeHead(spec));
  return slabs;
}

}  // namespace millrace
