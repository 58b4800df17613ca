#include "client/cli/plan_view.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cli/human.h"

namespace millrace {
namespace {

// Anything shorter is not worth a word.
constexpr double kLeastSeconds = 0.0005;

std::string Seconds(double seconds) {
  if (!std::isfinite(seconds)) return "-";
  if (seconds < 0.0995) return absl::StrFormat("%.1fms", 1e3 * std::max(seconds, 0.0));
  if (seconds < 9.95) return absl::StrFormat("%.2fs", seconds);
  return HumanDuration(absl::Seconds(seconds));
}

std::string Flops(double flops) {
  return flops < 1e12 ? absl::StrFormat("%.1f GFLOP/s", flops / 1e9)
                      : absl::StrFormat("%.1f TFLOP/s", flops / 1e12);
}

const char* BoundText(v1::JobPlan::Bound bound) {
  switch (bound) {
    case v1::JobPlan::COMPUTE:
      return "compute";
    case v1::JobPlan::LINK:
      return "the link between host and device";
    case v1::JobPlan::HOST_MEMORY:
      return "the host's memory bandwidth";
    case v1::JobPlan::OPTIMIZER:
      return "the optimizer on the host";
    default:
      return "";
  }
}

using Memory = google::protobuf::RepeatedPtrField<v1::JobPlan::Memory>;

int64_t Total(const Memory& memory) {
  int64_t total = 0;
  for (const auto& item : memory) total += item.bytes();
  return total;
}

std::string BytesFor(const Memory& memory, const std::string& purpose) {
  int64_t bytes = 0;
  for (const auto& item : memory) {
    if (item.purpose() == purpose) bytes += item.bytes();
  }
  return bytes > 0 ? HumanBytes(bytes) : "-";
}

std::string Budget(int64_t bytes) { return bytes > 0 ? HumanBytes(bytes) : "-"; }

std::string FormatMemory(const Terminal& terminal, const v1::JobPlan& plan) {
  // Both sides' purposes, each once, in the order in which they were given.
  std::vector<std::string> purposes;
  for (const Memory* side : {&plan.device_memory(), &plan.host_memory()}) {
    for (const auto& item : *side) {
      if (std::find(purposes.begin(), purposes.end(), item.purpose()) == purposes.end()) {
        purposes.push_back(item.purpose());
      }
    }
  }
  if (purposes.empty()) return "";
  Table table({{"MEMORY"}, {"DEVICE", Table::kRight}, {"HOST", Table::kRight}});
  for (const std::string& purpose : purposes) {
    table.AddRow(
        {purpose, BytesFor(plan.device_memory(), purpose), BytesFor(plan.host_memory(), purpose)});
  }
  table.AddRow(
      {"total", HumanBytes(Total(plan.device_memory())), HumanBytes(Total(plan.host_memory()))});
  table.AddRow({"budget", Budget(plan.device_budget_bytes()), Budget(plan.host_budget_bytes())});
  return absl::StrCat("\n", table.Format(terminal));
}

std::string FormatChoices(const Terminal& terminal, const v1::JobPlan& plan) {
  if (plan.choices().empty()) return "";
  Table table({{"CHOICE"}, {"VALUE"}, {"NEXT BEST"}, {"COSTS", Table::kRight}});
  for (const v1::JobPlan::Choice& choice : plan.choices()) {
    const bool has_next = !choice.next_best().empty();
    table.AddRow({choice.name(), absl::StrCat(choice.value(), choice.fixed() ? " (given)" : ""),
                  has_next ? choice.next_best() : "-",
                  has_next ? absl::StrCat("+", Seconds(choice.next_best_extra_seconds())) : "-"});
  }
  return absl::StrCat("\n", table.Format(terminal));
}

std::string Speed(const v1::JobPlan& plan) {
  return absl::StrCat(HumanCount(plan.tokens_per_second()), " tokens/s, ",
                      Seconds(plan.step_seconds()), " a step of ",
                      HumanCount(static_cast<double>(plan.tokens_per_step())), " tokens, ",
                      Flops(plan.model_flops()));
}

std::string Idle(const v1::JobPlan& plan) {
  const std::string stalls = StallsText(plan.stalls());
  return absl::StrCat(absl::StrFormat("%.1f%% of the step", 100 * plan.device_idle_ratio()),
                      stalls.empty() ? "" : absl::StrCat("; waits for ", stalls));
}

}  // namespace

std::string StallsText(const v1::StepStalls& stalls) {
  const std::pair<const char*, double> causes[] = {{"weights", stalls.weights_seconds()},
                                                   {"gradients", stalls.gradients_seconds()},
                                                   {"optimizer", stalls.optimizer_seconds()},
                                                   {"activations", stalls.activations_seconds()},
                                                   {"data", stalls.data_seconds()}};
  std::vector<std::string> parts;
  for (const auto& [cause, seconds] : causes) {
    if (seconds >= kLeastSeconds) parts.push_back(absl::StrCat(cause, " ", Seconds(seconds)));
  }
  return absl::StrJoin(parts, ", ");
}

void AddPlanFields(const v1::JobPlan& plan, Fields* fields) {
  fields->Add("Device", plan.device());
  if (!plan.fits()) {
    fields->Add("Fits", "no");
    fields->Add("Why", plan.shortfall());
    return;
  }
  fields->Add("Planned", Speed(plan));
  fields->Add("Bound by", BoundText(plan.bound()));
  fields->Add("Idle", Idle(plan));
}

std::string FormatPlan(const Terminal& terminal, const v1::JobPlan& plan) {
  Fields fields;
  fields.Add("Device", plan.device());
  fields.Add("Fits", plan.fits() ? "yes" : "no");
  if (plan.fits()) {
    fields.Add("Speed", Speed(plan));
    fields.Add("Bound by", BoundText(plan.bound()));
    fields.Add("Idle", Idle(plan));
    fields.Add("Sequence", absl::StrCat("at most ", plan.largest_sequence_length(), " tokens fit"));
    fields.Add("Micro-batch", absl::StrCat(plan.tokens_per_micro_batch(), " tokens; at most ",
                                           plan.largest_micro_batch_tokens(), " fit"));
  } else {
    fields.Add("Why", plan.shortfall());
  }
  std::string text = absl::StrCat(fields.Format(terminal), FormatMemory(terminal, plan),
                                  FormatChoices(terminal, plan));
  if (!plan.assumptions().empty()) absl::StrAppend(&text, "\nAssumptions\n");
  for (const std::string& assumption : plan.assumptions()) {
    absl::StrAppend(&text, "- ", Sanitize(assumption, /*keep_lines=*/false), "\n");
  }
  return text;
}

}  // namespace millrace
