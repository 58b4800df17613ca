#include "engine/model/slab_layout.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"

namespace millrace {
namespace {

constexpr int64_t kTensorAlignment = 32;    // elements
constexpr int64_t kSlabGranularity = 2048;  // elements

// What a family calls the modules behind a role; "{}" is the block's number. The weight is
// NAME.weight, the bias NAME.bias.
struct ModuleNames {
  TensorRole role;
  std::vector<absl::string_view> names;  // q, k, v; gate, up; or one for all
  bool transposed = false;
};

struct NamingScheme {
  absl::string_view model_type;
  std::vector<ModuleNames> modules;
};

const std::vector<NamingScheme>& NamingSchemes() {
  static const auto* schemes = new std::vector<NamingScheme>{
      {"llama",
       {
           {TensorRole::kTokenEmbedding, {"model.embed_tokens"}},
           {TensorRole::kPositionEmbedding, {"model.embed_positions"}},
           {TensorRole::kAttentionNorm, {"model.layers.{}.input_layernorm"}},
           {TensorRole::kQkv,
            {"model.layers.{}.self_attn.q_proj", "model.layers.{}.self_attn.k_proj",
             "model.layers.{}.self_attn.v_proj"}},
           {TensorRole::kAttentionOutput, {"model.layers.{}.self_attn.o_proj"}},
           {TensorRole::kMlpNorm, {"model.layers.{}.post_attention_layernorm"}},
           {TensorRole::kMlpIn, {"model.layers.{}.mlp.gate_proj", "model.layers.{}.mlp.up_proj"}},
           {TensorRole::kMlpOut, {"model.layers.{}.mlp.down_proj"}},
           {TensorRole::kFinalNorm, {"model.norm"}},
           {TensorRole::kOutputProjection, {"lm_head"}},
       }},
      {"gpt2",
       {
           {TensorRole::kTokenEmbedding, {"transformer.wte"}},
           {TensorRole::kPositionEmbedding, {"transformer.wpe"}},
           {TensorRole::kAttentionNorm, {"transformer.h.{}.ln_1"}},
           {TensorRole::kQkv, {"transformer.h.{}.attn.c_attn"}, true},
           {TensorRole::kAttentionOutput, {"transformer.h.{}.attn.c_proj"}, true},
           {TensorRole::kMlpNorm, {"transformer.h.{}.ln_2"}},
           {TensorRole::kMlpIn, {"transformer.h.{}.mlp.c_fc"}, true},
           {TensorRole::kMlpOut, {"transformer.h.{}.mlp.c_proj"}, true},
           {TensorRole::kFinalNorm, {"transformer.ln_f"}},
           {TensorRole::kOutputProjection, {"lm_head"}},
       }},
  };
  return *schemes;
}

const ModuleNames& NamesOf(absl::string_view model_type, TensorRole role) {
  const NamingScheme* scheme = &NamingSchemes().front();
  for (const NamingScheme& candidate : NamingSchemes()) {
    if (candidate.model_type == model_type) scheme = &candidate;
  }
  for (const ModuleNames& module : scheme->modules) {
    if (module.role == role) return module;
  }
  return scheme->modules.front();
}

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
  void AddNorm(TensorRole role, TensorRole bias_role) {
    Add(role, role, ".weight", {spec_.hidden_size}, 1, /*decay=*/false);
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
    const ModuleNames& names = NamesOf(spec_.model_type, module);
    TensorLayout tensor{role, 0, columns, RoundUp(end_, kTensorAlignment), decay, {}};
    const bool transposed = names.transposed && IsMatrix(role);
    for (int64_t rows : part_rows) tensor.rows += rows;
    if (names.names.size() == part_rows.size()) {
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
  slab.AddNorm(TensorRole::kAttentionNorm, TensorRole::kAttentionNormBias);
  slab.AddMatrix(TensorRole::kQkv, qkv, spec.hidden_size);
  if (spec.attention_bias) slab.AddBias(TensorRole::kQkvBias, TensorRole::kQkv, qkv);
  slab.AddMatrix(TensorRole::kAttentionOutput, hidden, spec.query_size());
  if (spec.attention_output_bias) {
    slab.AddBias(TensorRole::kAttentionOutputBias, TensorRole::kAttentionOutput, hidden);
  }
  slab.AddNorm(TensorRole::kMlpNorm, TensorRole::kMlpNormBias);
  slab.AddMatrix(TensorRole::kMlpIn, mlp_in, spec.hidden_size);
  if (spec.mlp_bias) slab.AddBias(TensorRole::kMlpInBias, TensorRole::kMlpIn, mlp_in);
  slab.AddMatrix(TensorRole::kMlpOut, hidden, spec.intermediate_size);
  if (spec.mlp_bias) slab.AddBias(TensorRole::kMlpOutBias, TensorRole::kMlpOut, hidden);
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
