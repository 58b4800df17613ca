// Where a block's passes find what they leave for each other: the pieces of the memory that its
// caller sizes by BlockSavedBytes, BlockRemadeBytes and BlockScratchBytes (block.h).
#ifndef MILLRACE_ENGINE_MODEL_BLOCK_MEMORY_H_
#define MILLRACE_ENGINE_MODEL_BLOCK_MEMORY_H_

#include <cstddef>
#include <cstdint>

#include "engine/base/dtype.h"
#include "engine/model/model_spec.h"

namespace millrace {

// Statistics of one norm. Of rows; `mean` of LayerNorm alone.
struct NormStatistics {
  float *rstd = nullptr, *mean = nullptr;
};

// What forward leaves: results of products and attention, and (remade) what element-wise passes
// make of these and x. nullptr: the spec has no such piece.
struct BlockSaved {
  // With null memory only bytes and remade_bytes mean something.
  BlockSaved(const ModelSpec& spec, int64_t tokens, DType dtype, const void* saved,
             const void* remade);

  // --- Saved. Without query and key norms, q and k in qkv are rotated; with them qkv is the
  // product alone.
  void *qkv, *attention, *mlp_in;
  void *attention_output = nullptr, *mlp_output = nullptr;  // before their norms
  float* log_sum_exp;
  // h; with norms after, remade.
  void* middle = nullptr;

  // --- Remade
  void *attention_input = nullptr, *mlp_input = nullptr, *activation;
  void* queries_keys = nullptr;  // [tokens, query + kv], normalized and rotated
  NormStatistics attention_norm, mlp_norm, attention_post_norm, mlp_post_norm, query_norm, key_norm;

  size_t bytes, remade_bytes;
};

// The gradients that backward makes on its way; those of the two halves share their memory.
struct BlockScratch {
  BlockScratch(const ModelSpec& spec, int64_t tokens, DType dtype, void* memory);

  void* dnormed;               // of a half's input
  void* doutput = nullptr;     // of a half's output, before its norm
  void* dmlp_input = nullptr;  // of the MLP's input, until attention has read what comes after both
  void *dactivation, *dmlp_in, *dattention, *dqkv;

  size_t bytes;
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_MODEL_BLOCK_MEMORY_H_
