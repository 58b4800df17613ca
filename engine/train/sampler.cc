#include "engine/train/sampler.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "engine/base/status_macros.h"

namespace millrace {
namespace {

// Bytes of the valid UTF-8 sequence at the begin of `text` (Unicode 15, table 3-7); 0 when there is
// none.
size_t ValidSequence(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4) return 0;
  const size_t length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  if (text.size() < length) return 0;
  const unsigned char low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const unsigned char high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (byte(1) < low || byte(1) > high) return 0;
  for (size_t i = 2; i < length; ++i) {
    if (byte(i) < 0x80 || byte(i) > 0xbf) return 0;
  }
  return length;
}

}  // namespace

int32_t DrawToken(absl::Span<const float> logits, const SamplingParams& params, double uniform) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const size_t kept = params.temperature <= 0 ? 1
                      : params.top_k > 0      ? std::min<size_t>(params.top_k, order.size())
                                              : order.size();
  std::partial_sort(
      order.begin(), order.begin() + static_cast<ptrdiff_t>(kept), order.end(),
      [&](int32_t a, int32_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
  if (kept == 1) return order[0];

  std::vector<double> cumulative(kept);
  double total = 0;
  for (size_t i = 0; i < kept; ++i) {
    const double difference = static_cast<double>(logits[order[i]]) - logits[order[0]];
    total += std::exp(difference / params.temperature);
    cumulative[i] = total;
  }
  const auto chosen = std::upper_bound(cumulative.begin(), cumulative.end(), uniform * total);
  const size_t index = static_cast<size_t>(chosen - cumulative.begin());
  return order[std::min(index, kept - 1)];
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
    if (token == limits.end_of_document) break;
    tokens.push_back(token);
  }
  return std::vector<int32_t>(tokens.begin() + static_cast<ptrdiff_t>(prompt.size()), tokens.end());
}

std::string ToValidUtf8(absl::string_view text) {
  std::string valid;
  while (!text.empty()) {
    const size_t length = ValidSequence(text);
    if (length == 0) {
      valid += "\xef\xbf\xbd";
      text.remove_prefix(1);
    } else {
      valid.append(text.data(), length);
      text.remove_prefix(length);
    }
  }
  return valid;
}

}  // namespace millrace
