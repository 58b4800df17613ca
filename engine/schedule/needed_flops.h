// Floating-point operations that training a model needs, whoever makes them.
#ifndef MILLRACE_ENGINE_SCHEDULE_NEEDED_FLOPS_H_
#define MILLRACE_ENGINE_SCHEDULE_NEEDED_FLOPS_H_

#include <cstdint>

#include "engine/model/model_spec.h"
#include "engine/schedule/plan.h"

namespace millrace {

// Query-key pairs of causal attention in a document of `tokens`, of which a query sees the last
// `window`, its own included; 0: all.
double AttentionPairs(double tokens, int64_t window);
// Of `tokens` in documents of `document` each.
double AttentionPairsInDocuments(double tokens, int64_t document, int64_t window);

// Forward and backward, nothing made again:
//   6 · N · tokens + 12 · query_size · Σ_layers pairs
// N: elements of all projections, the output's included (Chowdhery et al. 2022, appendix B, of
// attention what is seen alone). `pairs` and `window_pairs`: sums of AttentionPairs over documents,
// of layers without and with a window.
double NeededFlops(const ModelSpec& spec, double tokens, double pairs, double window_pairs);
// Of a step of `shape`, in documents of shape.longest_document tokens.
double NeededFlops(const ModelSpec& spec, const StepShape& shape);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_SCHEDULE_NEEDED_FLOPS_H_
