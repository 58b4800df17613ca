#include "engine/train/sampler.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>

#include "engine/base/status_macros.h"

namespace millrace {
namespace {

// The rank-th largest logit, the smallest where there are fewer; NaN is smaller than all.
float LogitOfRank(absl::Span<const float> logits, int64_t rank) {
  std::vector<float> sorted(logits.begin(), logits.end());
  std::erase_if(sorted, [](float logit) { return std::isnan(logit); });
  const auto index = static_cast<ptrdiff_t>(std::min<size_t>(rank, sorted.size()) - 1);
  std::nth_element(sorted.begin(), sorted.begin() + index, sorted.end(), std::greater<>());
  return sorted[static_cast<size_t>(index)];
}

// Keeps the likeliest candidates, of which those before the last weigh less than `weight`.
void KeepTop(double weight, std::vector<Candidate>* candidates) {
  const auto likelier = [](const Candidate& a, const Candidate& b) {
    return a.weight != b.weight ? a.weight > b.weight : a.token < b.token;
  };
  double before = 0;
  size_t kept = 0;
  // Few are kept as a rule: no more are put in order than are looked at, or so.
  for (size_t sorted = 0; sorted < candidates->size();) {
    const size_t begin = sorted;
    sorted = std::min(candidates->size(), std::max<size_t>(64, 8 * sorted));
    std::partial_sort(candidates->begin() + static_cast<ptrdiff_t>(begin),
                      candidates->begin() + static_cast<ptrdiff_t>(sorted), candidates->end(),
                      likelier);
    for (; kept < sorted; ++kept) {
      if (kept > 0 && before >= weight) {
        candidates->resize(kept);
        return;
      }
      before += (*candidates)[kept].weight;
    }
  }
}

}  // namespace

std::vector<Candidate> Candidates(absl::Span<const float> logits, const SamplingParams& params) {
  int32_t likeliest = -1;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i])) continue;
    if (likeliest < 0 || logits[i] > logits[likeliest]) likeliest = static_cast<int32_t>(i);
  }
  if (likeliest < 0) return {};
  const float largest = logits[likeliest];
  // One logit that is infinite leaves room for no other.
  if (params.temperature <= 0 || std::isinf(largest)) return {{likeliest, 1.0}};

  const float least = params.top_k > 0 ? LogitOfRank(logits, params.top_k)
                                       : -std::numeric_limits<float>::infinity();
  std::vector<Candidate> candidates;
  double total = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] >= least)) continue;
    const double difference = static_cast<double>(logits[i]) - largest;
    candidates.push_back({static_cast<int32_t>(i), std::exp(difference / params.temperature)});
    total += candidates.back().weight;
  }
  if (params.top_p < 1) KeepTop(params.top_p * total, &candidates);
  if (params.min_p > 0) {
    std::erase_if(candidates, [&](const Candidate& c) { return c.weight < params.min_p; });
  }
  return candidates;
}

int32_t DrawToken(absl::Span<const float> logits, const SamplingParams& params, double uniform) {
  const std::vector<Candidate> candidates = Candidates(logits, params);
  if (candidates.empty()) return -1;
  double total = 0;
  for (const Candidate& candidate : candidates) total += candidate.weight;
  double rest = uniform * total;
  for (const Candidate& candidate : candidates) {
    if (rest < candidate.weight) return candidate.token;
    rest -= candidate.weight;
  }
  // Rounding alone comes here, and only a token that can be drawn is.
  const auto last = std::find_if(candidates.rbegin(), candidates.rend(),
                                 [](const Candidate& c) { return c.weight > 0; });
  return last->token;
}

void PenalizeRepetition(absl::Span<const int32_t> tokens, double penalty,
                        absl::Span<float> logits) {
  const auto factor = static_cast<float>(penalty);
  for (int32_t token : tokens) {
    float& logit = logits[static_cast<size_t>(token)];
    logit = logit < 0 ? logit * factor : logit / factor;
  }
}

absl::StatusOr<std::vector<int32_t>> Generate(const std::vector<int32_t>& prompt,
                                              const GenerationLimits& limits,
                                              const SamplingParams& params,
                                              const CounterRandom& random, LogitsFunction logits) {
  std::vector<int32_t> tokens = prompt;
  std::vector<float> scores(static_cast<size_t>(limits.vocab_size));
  for (int64_t i = 0; i < limits.max_tokens; ++i) {
    const size_t context = std::min(tokens.size(), static_cast<size_t>(limits.context));
    MILLRACE_RETURN_IF_ERROR(
        logits(absl::MakeConstSpan(tokens).last(context), absl::MakeSpan(scores)));
    const int32_t token = DrawToken(scores, params, random.Uniform(static_cast<uint64_t>(i)));
    if (token < 0 || token == limits.end_of_document) break;
    tokens.push_back(token);
  }
  return std::vector<int32_t>(tokens.begin() + static_cast<ptrdiff_t>(prompt.size()), tokens.end());
}

}  // namespace millrace
