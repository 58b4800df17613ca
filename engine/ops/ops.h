// The mathematics of a layer: one interface, one implementation a kind of device.
//
// Pointers are device pointers; matrices are row major. Activations have the compute type
// (`Ops::compute_dtype`); so have weights and biases as they lie in an uploaded slab. Statistics
// are f32. Every call is enqueued on `stream` and returns at once; errors are the stream's. Results
// depend on arguments, `threads` and the hardware alone, never on addresses or timing.
//
// Gradients of weights go to `GradientTarget`s: f32 and added to what is there, or of the compute
// type and written once.
#ifndef MILLRACE_ENGINE_OPS_OPS_H_
#define MILLRACE_ENGINE_OPS_OPS_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "engine/base/dtype.h"
#include "engine/device/device.h"
#include "engine/ops/activation_kind.h"

namespace millrace {

// Where the gradient of a parameter tensor goes.
struct GradientTarget {
  void* data = nullptr;  // nullptr: not wanted
  DType dtype = DType::kF32;
  bool accumulate = false;  // add to what is there (f32 only) instead of overwriting
};

// y[tokens, out] = x[tokens, in] · w[out, in]ᵀ + bias[out] + residual[tokens, out]
struct LinearForward {
  int64_t tokens, in, out;
  const void* x;
  const void* weight;
  const void* bias = nullptr;
  const void* residual = nullptr;  // of y_dtype; may be y
  void* y;
  DType y_dtype;  // compute type, or f32
};

// dx = dy · w;  dw = dyᵀ · x;  dbias = Σ_tokens dy
struct LinearBackward {
  int64_t tokens, in, out;
  const void* dy;  // [tokens, out]
  const void* x;   // [tokens, in]
  const void* weight;
  void* dx = nullptr;  // nullptr: not wanted
  GradientTarget dweight;
  GradientTarget dbias;
};

// RMSNorm (Zhang & Sennrich 2019): y = x · rstd · weight, rstd = (mean(x²) + ε)^-½.
// LayerNorm (Ba et al. 2016): y = (x − mean) · rstd · weight + bias.
//
// A token's row is `groups` segments of `width` elements, one after the other, each normalized by
// itself with the same weight: heads, for query and key norms. Rows lie x_stride and y_stride
// elements apart; 0: groups · width.
struct NormForward {
  bool layer_norm;
  bool plus_one = false;  // 1 + weight stands for weight (Gemma)
  int64_t tokens, width;
  int64_t groups = 1;
  double epsilon;
  const void* x;
  int64_t x_stride = 0;
  const void* weight;
  const void* bias = nullptr;
  const void* residual = nullptr;  // [tokens, groups·width]: y = residual + norm; may be y
  void* y;                         // may be x; nullptr: the statistics alone
  int64_t y_stride = 0;
  float* mean = nullptr;  // [tokens·groups]; LayerNorm only
  float* rstd;            // [tokens·groups]
};

// dx = residual + d/dx; weights' gradients summed over tokens and groups.
struct NormBackward {
  bool layer_norm;
  bool plus_one = false;
  int64_t tokens, width;
  int64_t groups = 1;
  const void* dy;
  int64_t dy_stride = 0;
  const void* x;
  int64_t x_stride = 0;
  const void* weight;
  const float* mean = nullptr;
  const float* rstd;
  const void* residual = nullptr;  // [tokens, groups·width]; may be dx
  void* dx;                        // may be dy
  int64_t dx_stride = 0;
  GradientTarget dweight;
  GradientTarget dbias;
};

// Rotary position embedding (Su et al. 2021) in the half-split form of Llama: of each head the
// first `rotary_width` elements turn, (x[i], x[i + rotary_width/2]) by the angle of pair i at the
// token's position; others stay. In place, on `heads` heads at the beginning of each row: those of
// queries, then those of keys. `backward` applies the transpose: the gradient's rotation.
struct Rotary {
  int64_t tokens, heads, head_dim, rotary_width;
  int64_t row_stride;          // elements from one token to the next
  const int32_t* positions;    // [tokens], within their document
  const float* cos_sin_table;  // [positions, rotary_width/2, 2], made by FillRotaryTable
  void* x;
  bool backward = false;
};

// y[i] += x[i].
struct Add {
  int64_t count;
  const void* x;
  void* y;
};

// target row i = source row i, `width` elements.
struct CopyRows {
  int64_t rows, width;
  const void* source;
  int64_t source_stride;
  void* target;
  int64_t target_stride;
};

// Causal grouped-query attention inside documents, blockwise with online softmax (Dao et al. 2022,
// Dao 2023); the full score matrix is never stored. Query head h reads key/value head
// h / (num_heads / num_kv_heads). The score of a query with a key is
//
//   s = scale · q·k, and with a soft cap (Gemma 2)  cap · tanh(s / cap).
struct AttentionInput {
  int64_t tokens, num_heads, num_kv_heads, head_dim;
  // Document i is the queries of tokens [boundaries[i], boundaries[i + 1]); first 0, last `tokens`.
  // Host memory, as all spans here, which must stay until the stream is past the op.
  absl::Span<const int32_t> boundaries;
  // Where the keys and values of document i are: rows [key_begin[i], key_begin[i] + key_count[i])
  // of k and v, of which its queries are the last. Empty: the rows of its queries. Forward only.
  absl::Span<const int64_t> key_begin, key_count;
  float scale;         // usually head_dim^-½
  float softcap = 0;   // 0: none
  int64_t window = 0;  // the last so many keys, its own included, are seen; 0: all
  // Row t of each: its heads, one after the other.
  const void *q, *k, *v;
  int64_t q_stride, k_stride, v_stride;  // elements from one row to the next
};

struct AttentionForward {
  AttentionInput input;
  void* output;                  // [tokens, num_heads·head_dim]
  float* log_sum_exp = nullptr;  // [num_heads, tokens], of s; nullptr: not wanted
};

struct AttentionBackward {
  AttentionInput input;
  const void* output;
  const float* log_sum_exp;
  const void* doutput;
  // All written: [tokens, (num_heads + 2·num_kv_heads)·head_dim], q heads, k heads, v heads.
  void* dqkv;
};

// y[tokens, width] from x. Gated, x is [tokens, 2·width] = gate, up, and y = f(gate) · up (Shazeer
// 2020); else x is [tokens, width] and y = f(x). Backward: dx from dy and x; y, where given, is
// made again.
struct Activation {
  ActivationKind kind;
  bool gated;
  int64_t tokens, width;
  const void* x;
  void* y = nullptr;
  const void* dy = nullptr;
  void* dx = nullptr;  // backward; may be x
};

// x[i] = cap · tanh(x[i] / cap).
struct SoftCap {
  int64_t count;
  float cap;
  float* x;
};

// Cross-entropy of a linear projection onto the vocabulary, with logits l = x · weightᵀ, or with a
// soft cap (Gemma 2) l = cap · tanh(x · weightᵀ / cap):
//
//   loss = Σ over unmasked tokens of lse − l[target] + z_loss · lse²,  lse = ln Σ_v e^l[v],
//
// where the last term keeps lse near 0 (z-loss: Chowdhery et al. 2022, PaLM, section 5). Its
// gradient to l[v] is p[v] · (1 + 2 · z_loss · lse) − (v = target), p[v] = e^(l[v] − lse), and
// through the cap that times 1 − (l / cap)². Targets are in host memory; a negative one is ignored:
// no loss, no gradient. One that is not under `vocab` is the stream's error. Logits exist in the
// workspace alone, those of `tokens` tokens and of one tile of classes at a time.

// Forward and backward together.
struct LinearCrossEntropy {
  int64_t tokens, hidden, vocab;
  const void* x;           // [tokens, hidden]
  const void* weight;      // [vocab, hidden]
  const int32_t* targets;  // [tokens]
  // Factor of every token's loss in the gradient: 1 / (unmasked tokens of the whole step).
  float gradient_scale;
  // 0: logits of all classes exist at once, and no product is made twice. Else so many classes at a
  // time: the tiles pass once for the statistics of softmax and, with logits made again, once for
  // the gradients; dx is summed over tiles in ascending order in f32.
  int64_t vocab_tile = 0;
  double z_loss = 0;
  float softcap = 0;   // of logits; 0: none
  double* loss_sum;    // host; added to, token by token
  void* dx = nullptr;  // [tokens, hidden], may be x; nullptr: forward only
  GradientTarget dweight;
};

// The same a tile at a time, for a weight of which only a tile is at hand. CrossEntropyStatistics
// for all tiles in ascending order, CrossEntropyLoss, then CrossEntropyGradient for all tiles in
// ascending order give bitwise what LinearCrossEntropy does with these tiles.
struct ClassTile {
  int64_t tokens, hidden, vocab;
  int64_t first, count;    // classes [first, first + count)
  const void* x;           // [tokens, hidden]
  const void* weight;      // [count, hidden], those of the tile
  const int32_t* targets;  // [tokens]
  float softcap = 0;       // of logits; 0: none
};

// Of the logits of the classes so far. p[v] = e^(l[v] − max) / sum.
struct SoftmaxStatistics {
  float* max = nullptr;           // [tokens]
  float* sum = nullptr;           // [tokens], Σ e^(l − max)
  float* target_logit = nullptr;  // [tokens]; nothing for ignored tokens
};

// Takes a tile into the statistics; the tile with `first` 0 begins them.
struct CrossEntropyStatistics {
  ClassTile tile;
  SoftmaxStatistics statistics;
};

// Adds the loss, from the statistics of all classes.
struct CrossEntropyLoss {
  int64_t tokens;
  const int32_t* targets;
  double z_loss = 0;
  SoftmaxStatistics statistics;
  double* loss_sum;  // host; added to, token by token
};

// Gradients through the logits of one tile, from the statistics of all classes.
struct CrossEntropyGradient {
  ClassTile tile;
  SoftmaxStatistics statistics;
  float gradient_scale;
  double z_loss = 0;
  float* dx;               // [tokens, hidden]; the tile with `first` 0 overwrites, others add
  GradientTarget dweight;  // [count, hidden], of the tile
};

// target[count] = source[count], rounded to nearest even where the target is bf16.
struct ConvertGradient {
  int64_t count;
  const float* source;
  void* target;
  DType target_dtype;
};

// The largest of everything that ops will be called with, to size their scratch memory.
struct OpsLimits {
  int64_t tokens = 0;  // of a micro-batch
  int64_t hidden = 0, qkv = 0, query = 0, mlp_in = 0, intermediate = 0, vocab = 0;
  int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
  int64_t longest_document = 0;
  // Of the cross-entropy: tokens and classes whose logits exist at a time. vocab_tile 0: all.
  int64_t token_chunk = 0, vocab_tile = 0;
};

class Ops {
 public:
  virtual ~Ops() = default;

  virtual DType compute_dtype() const = 0;
  // Scratch that any one op within `limits` needs at most.
  virtual size_t WorkspaceBytes(const OpsLimits& limits) const = 0;
  // Scratch for the calls that follow, which must all be on one stream.
  virtual void SetWorkspace(void* data, size_t bytes) = 0;

  virtual void Run(Stream& stream, const LinearForward& op) = 0;
  virtual void Run(Stream& stream, const LinearBackward& op) = 0;
  virtual void Run(Stream& stream, const NormForward& op) = 0;
  virtual void Run(Stream& stream, const NormBackward& op) = 0;
  virtual void Run(Stream& stream, const Rotary& op) = 0;
  virtual void Run(Stream& stream, const CopyRows& op) = 0;
  virtual void Run(Stream& stream, const Add& op) = 0;
  virtual void Run(Stream& stream, const AttentionForward& op) = 0;
  virtual void Run(Stream& stream, const AttentionBackward& op) = 0;
  virtual void Run(Stream& stream, const Activation& op) = 0;
  virtual void Run(Stream& stream, const SoftCap& op) = 0;
  virtual void Run(Stream& stream, const LinearCrossEntropy& op) = 0;
  virtual void Run(Stream& stream, const CrossEntropyStatistics& op) = 0;
  virtual void Run(Stream& stream, const CrossEntropyLoss& op) = 0;
  virtual void Run(Stream& stream, const CrossEntropyGradient& op) = 0;
  virtual void Run(Stream& stream, const ConvertGradient& op) = 0;
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_OPS_OPS_H_
