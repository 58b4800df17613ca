#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/train/job_plan.h"
#include "engine/train/job_shortfall.h"

namespace millrace {
namespace {

int64_t Total(const std::vector<MemoryItem>& items) {
  int64_t total = 0;
  for (const MemoryItem& item : items) total += static_cast<int64_t>(item.bytes);
  return total;
}

std::string BytesFor(const std::vector<MemoryItem>& items, const std::string& purpose) {
  int64_t bytes = 0;
  for (const MemoryItem& item : items) {
    if (item.purpose == purpose) bytes += static_cast<int64_t>(item.bytes);
  }
  return bytes > 0 ? BytesText(bytes) : "-";
}

std::string MemoryTable(const JobPlan& plan) {
  std::vector<std::string> purposes;
  for (const std::vector<MemoryItem>* side : {&plan.device_memory, &plan.host_memory}) {
    for (const MemoryItem& item : *side) {
      if (std::find(purposes.begin(), purposes.end(), item.purpose) == purposes.end()) {
        purposes.push_back(item.purpose);
      }
    }
  }
  std::string text = absl::StrFormat("%-14s %12s %12s\n", "memory", "device", "host");
  for (const std::string& purpose : purposes) {
    absl::StrAppendFormat(&text, "%-14s %12s %12s\n", purpose,
                          BytesFor(plan.device_memory, purpose),
                          BytesFor(plan.host_memory, purpose));
  }
  absl::StrAppendFormat(&text, "%-14s %12s %12s\n", "total", BytesText(Total(plan.device_memory)),
                        BytesText(Total(plan.host_memory)));
  absl::StrAppendFormat(&text, "%-14s %12s %12s\n", "budget", BytesText(plan.device_budget_bytes),
                        BytesText(plan.host_budget_bytes));
  return text;
}

}  // namespace

std::string ExplainPlan(const JobPlan& plan) {
  std::string text = absl::StrCat(plan.device, "\n\n", MemoryTable(plan), "\n");
  if (!plan.fits) return absl::StrCat(text, "does not fit: ", plan.shortfall, "\n");
  for (const JobPlan::Choice& choice : plan.choices) {
    absl::StrAppendFormat(&text, "%-22s %s%s", choice.name, choice.value,
                          choice.fixed ? " (given)" : "");
    if (!choice.next_best.empty()) {
      absl::StrAppendFormat(&text, "; next best %s, +%.3f s", choice.next_best,
                            choice.next_best_extra_seconds);
    }
    text += '\n';
  }
  absl::StrAppendFormat(&text,
                        "\n%.0f tokens/s, %.3f s a step of %d tokens, %.1f TFLOP/s; bound by %s; "
                        "the device idles %.1f%% of the step\n",
                        plan.tokens_per_second, plan.step_seconds, plan.tokens_per_step,
                        plan.model_flops / 1e12, NameOf(plan.bound), 100 * plan.device_idle_ratio);
  absl::StrAppendFormat(&text, "fits up to a sequence of %d and a micro-batch of %d tokens\n",
                        plan.largest_sequence_length, plan.largest_micro_batch_tokens);
  for (const std::string& assumption : plan.assumptions) {
    absl::StrAppend(&text, "- ", assumption, "\n");
  }
  return text;
}

}  // namespace millrace
