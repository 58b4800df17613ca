#include "engine/schedule/needed_flops.h"

namespace millrace {
namespace {

double Real(int64_t value) { return static_cast<double>(value); }

}  // namespace

double AttentionPairs(double tokens, int64_t window) {
  if (window == 0 || tokens <= Real(window)) return tokens * (tokens + 1) / 2;
  return Real(window) * (Real(window) + 1) / 2 + (tokens - Real(window)) * Real(window);
}

double AttentionPairsInDocuments(double tokens, int64_t document, int64_t window) {
  return tokens / Real(document) * AttentionPairs(Real(document), window);
}

double NeededFlops(const ModelSpec& spec, double tokens, double pairs, double window_pairs) {
  const double block = Real(spec.hidden_size * (spec.qkv_size() + spec.query_size() +
                                                spec.mlp_in_size() + spec.intermediate_size));
  const double matrices = Real(spec.num_layers) * block + Real(spec.hidden_size * spec.vocab_size);
  double seen = 0;
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
    seen += spec.HasWindow(layer) ? window_pairs : pairs;
  }
  return 6 * matrices * tokens + 12 * Real(spec.query_size()) * seen;
}

double NeededFlops(const ModelSpec& spec, const StepShape& shape) {
  const double tokens = Real(shape.micro_batches * shape.tokens_per_micro_batch);
  return NeededFlops(spec, tokens, AttentionPairsInDocuments(tokens, shape.longest_document, 0),
                     AttentionPairsInDocuments(tokens, shape.longest_document, spec.window));
}

}  // namespace millrace
