#include "engine/model/block_memory.h"

#include <algorithm>

#include "engine/model/carver.h"

namespace millrace {

BlockSaved::BlockSaved(const ModelSpec& spec, int64_t tokens, DType dtype, const void* saved,
                       const void* remade) {
  const size_t size = SizeOf(dtype);
  const int64_t hidden = tokens * spec.hidden_size;
  Carver carver(const_cast<void*>(saved));
  qkv = carver.Take(tokens * spec.qkv_size(), size);
  attention = carver.Take(tokens * spec.query_size(), size);
  log_sum_exp = carver.TakeFloats(tokens * spec.num_heads);
  if (spec.norm_after) {
    attention_output = carver.Take(hidden, size);
    mlp_output = carver.Take(hidden, size);
  } else if (!spec.parallel_residual) {
    middle = carver.Take(hidden, size);
  }
  mlp_in = carver.Take(tokens * spec.mlp_in_size(), size);
  bytes = carver.used();

  Carver again(const_cast<void*>(remade));
  const auto statistics = [&](int64_t rows, bool layer_norm) {
    NormStatistics norm;
    norm.rstd = again.TakeFloats(rows);
    if (layer_norm) norm.mean = again.TakeFloats(rows);
    return norm;
  };
  const bool layer_norm = spec.norm == NormKind::kLayerNorm;
  if (spec.norm_before) {
    attention_input = again.Take(hidden, size);
    mlp_input = again.Take(hidden, size);
  }
  activation = again.Take(tokens * spec.intermediate_size, size);
  if (spec.norm_before) {
    attention_norm = statistics(tokens, layer_norm);
    mlp_norm = statistics(tokens, layer_norm);
  }
  if (spec.norm_after) {
    middle = again.Take(hidden, size);
    attention_post_norm = statistics(tokens, layer_norm);
    mlp_post_norm = statistics(tokens, layer_norm);
  }
  if (spec.query_key_norm != QueryKeyNorm::kNone) {
    const bool heads = spec.query_key_norm == QueryKeyNorm::kPerHead;
    queries_keys = again.Take(tokens * (spec.query_size() + spec.kv_size()), size);
    query_norm = statistics(tokens * (heads ? spec.num_heads : 1), false);
    key_norm = statistics(tokens * (heads ? spec.num_kv_heads : 1), false);
  }
  remade_bytes = again.used();
}

BlockScratch::BlockScratch(const ModelSpec& spec, int64_t tokens, DType dtype, void* memory) {
  const size_t size = SizeOf(dtype);
  const int64_t hidden = tokens * spec.hidden_size;
  Carver carver(memory);
  dnormed = carver.Take(hidden, size);
  if (spec.norm_after) doutput = carver.Take(hidden, size);
  if (spec.parallel_residual) dmlp_input = carver.Take(hidden, size);
  Carver half = carver;
  dactivation = carver.Take(tokens * spec.intermediate_size, size);
  dmlp_in = carver.Take(tokens * spec.mlp_in_size(), size);
  dattention = half.Take(tokens * spec.query_size(), size);
  dqkv = half.Take(tokens * spec.qkv_size(), size);
  bytes = std::max(carver.used(), half.used());
}

}  // namespace millrace
