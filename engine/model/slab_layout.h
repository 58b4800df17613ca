// Where each tensor lies in its unit's slab.
//
// A model is units: the embedding, each decoder block, the head. A unit's parameters are one slab:
// elements [0, count) of one type, tensors in a fixed order at offsets counted in elements. What is
// uploaded, bound, updated and hashed is the slab; nothing addresses a parameter any other way.
//
// All projection weights are stored [out, in]. Some are fused (q, k, v; gate, up): one tensor here,
// several in a model directory, which `parts` lists in order of rows. Where a model directory's
// tensor has its rows in another order (gpt_neox: q, k, v of each head), each run of rows is a
// part.
#ifndef MILLRACE_ENGINE_MODEL_SLAB_LAYOUT_H_
#define MILLRACE_ENGINE_MODEL_SLAB_LAYOUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "engine/model/model_spec.h"

namespace millrace {

enum class TensorRole : uint8_t {
  kTokenEmbedding,     // [vocab, hidden]
  kPositionEmbedding,  // [max_positions, hidden]
  kAttentionNorm,      // [hidden], before attention; norms of [hidden] have a bias role beside them
  kAttentionNormBias,
  kQkv,              // [qkv, hidden]
  kQkvBias,          // [qkv]
  kQueryNorm,        // [head_dim], or [query] when of the whole projection
  kKeyNorm,          // [head_dim], or [kv]
  kAttentionOutput,  // [hidden, query]
  kAttentionOutputBias,
  kAttentionPostNorm,  // of what attention adds to the residual
  kAttentionPostNormBias,
  kMlpNorm,
  kMlpNormBias,
  kMlpIn,  // [mlp_in, hidden]
  kMlpInBias,
  kMlpOut,  // [hidden, intermediate]
  kMlpOutBias,
  kMlpPostNorm,  // of what the MLP adds to the residual
  kMlpPostNormBias,
  kFinalNorm,
  kFinalNormBias,
  kOutputProjection,  // [vocab, hidden]; absent when tied
};

// Whether the role is a matrix or an embedding; else it is the vector of a norm or a bias.
bool IsMatrix(TensorRole role);

// Rows of a slab tensor, and where a model directory has them: rows [first_row, first_row + rows)
// here are rows [row_in_file, row_in_file + rows) of its tensor `name`. Seen from the file, see
// file_tensor.h.
struct TensorPart {
  std::string name;  // in safetensors, e.g. "model.layers.0.self_attn.q_proj.weight"
  int64_t first_row = 0;
  int64_t rows = 0;
  // The file holds [in, out] (GPT-2's Conv1D) where the slab holds [out, in].
  bool transposed = false;
  int64_t row_in_file = 0;
  // Rows of the file's tensor; 0: `rows`. Those that this part leaves out are other parts'.
  int64_t rows_in_file = 0;

  int64_t file_rows() const { return rows_in_file > 0 ? rows_in_file : rows; }
};

struct TensorLayout {
  TensorRole role;
  int64_t rows = 0;
  int64_t columns = 1;  // 1 for vectors
  int64_t offset = 0;   // elements from the slab's begin; a multiple of 32
  bool decay = false;   // weight decay applies
  std::vector<TensorPart> parts;

  int64_t count() const { return rows * columns; }
};

enum class UnitKind : uint8_t { kEmbedding, kBlock, kHead };

struct SlabLayout {
  UnitKind kind;
  int64_t index = 0;  // of the unit: 0 embedding, 1..num_layers blocks, num_layers + 1 head
  std::vector<TensorLayout> tensors;
  // Elements with padding; a multiple of 2048, so that f32 and bf16 slabs end on pages.
  int64_t count = 0;

  // nullptr when the slab has no such tensor.
  const TensorLayout* Find(TensorRole role) const {
    for (const TensorLayout& tensor : tensors) {
      if (tensor.role == role) return &tensor;
    }
    return nullptr;
  }
  // Parameters without padding.
  int64_t parameters() const {
    int64_t sum = 0;
    for (const TensorLayout& tensor : tensors) sum += tensor.count();
    return sum;
  }
};

// The slabs of a model, one a unit in the order of the forward pass. With tied embeddings the
// head's slab holds the final norm alone, and the head reads kTokenEmbedding of slab 0.
std::vector<SlabLayout> MakeSlabLayouts(const ModelSpec& spec);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_MODEL_SLAB_LAYOUT_H_
