#include "engine/train/plan_cards.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/status_macros.h"
#include "engine/schedule/profile.h"
#include "engine/train/job_plan.h"

namespace millrace {
namespace {

constexpr int64_t kSequence = 1024;
constexpr int64_t kTokensPerStep = 65536;

struct Shape {
  const char* name;
  int64_t layers, hidden, heads, kv_heads, head_dim, intermediate, vocab;
  bool attention_bias, tied;
};
// As published in each model's config.json.
constexpr Shape kShapes[] = {
    {"Qwen2.5-0.5B", 24, 896, 14, 2, 64, 4864, 151936, true, true},
    {"Qwen2.5-1.5B", 28, 1536, 12, 2, 128, 8960, 151936, true, true},
    {"Qwen2.5-3B", 36, 2048, 16, 2, 128, 11008, 151936, true, true},
    {"Qwen2.5-7B", 28, 3584, 28, 4, 128, 18944, 152064, true, false},
    {"Llama-3.1-8B", 32, 4096, 32, 8, 128, 14336, 128256, false, false},
    {"Qwen2.5-14B", 48, 5120, 40, 8, 128, 13824, 152064, true, false},
    {"Qwen2.5-32B", 64, 5120, 40, 8, 128, 27648, 152064, true, false},
    {"Llama-3.1-70B", 80, 8192, 64, 8, 128, 28672, 128256, false, false},
};

ModelSpec ModelOf(const Shape& shape) {
  ModelSpec model;
  model.model_type = "llama";
  model.vocab_size = shape.vocab;
  model.hidden_size = shape.hidden;
  model.num_layers = shape.layers;
  model.num_heads = shape.heads;
  model.num_kv_heads = shape.kv_heads;
  model.head_dim = model.rotary_width = shape.head_dim;
  model.intermediate_size = shape.intermediate;
  model.max_positions = 32768;
  model.attention_bias = shape.attention_bias;
  model.tied_embeddings = shape.tied;
  return model;
}

TrainSpec SpecFor(Recipe recipe) {
  TrainSpec spec;
  spec.sequence_length = kSequence;
  spec.tokens_per_step = kTokensPerStep;
  spec.recipe = recipe;
  spec.compute = DType::kBF16;
  return spec;
}

// Three digits that count.
std::string Rate(double value) {
  if (value >= 99950) return absl::StrFormat("%.0fk", value / 1000);
  if (value >= 9995) return absl::StrFormat("%.1fk", value / 1000);
  return absl::StrFormat("%.0f", value);
}

absl::StatusOr<std::string> Row(const Shape& shape, const PlanTarget& target) {
  const ModelSpec model = ModelOf(shape);
  JobPlan plan;
  Recipe used = Recipe::kFull;
  for (Recipe recipe : {Recipe::kFull, Recipe::kLean, Recipe::kTiny}) {
    used = recipe;
    MILLRACE_ASSIGN_OR_RETURN(plan, PlanJob(SpecFor(recipe), model, target));
    if (plan.fits) break;
  }
  if (!plan.fits) {
    return absl::StrCat("| ", shape.name, " | – | | | | | ", plan.shortfall, " |\n");
  }
  std::string activations;
  for (const JobPlan::Choice& choice : plan.choices) {
    if (choice.name == "activations") activations = choice.value;
  }
  return absl::StrCat("| ", shape.name, " | ", NameOf(used), " | ", Rate(plan.tokens_per_second),
                      " | ", Rate(plan.model_flops / 1e12), " | ", NameOf(plan.bound), " | ",
                      absl::StrFormat("%.1f%%", 100 * plan.device_idle_ratio), " | ", activations,
                      ", ", plan.plan.order == Order::kLayerMajor ? "layer-major" : "batch-major",
                      ", sequences up to ", plan.largest_sequence_length, " |\n");
}

}  // namespace

absl::StatusOr<std::string> CardsDocument() {
  std::string text = absl::StrCat(
      "# What each card trains\n\n"
      "Made by `bazel run //engine/train:plan_cards`, from the planner and the shipped profiles; "
      "nothing here is measured. Steps of ",
      kTokensPerStep, " tokens, sequences of ", kSequence,
      ", bf16 compute, AdamW, clipping by the exact norm. For each model the most exact recipe "
      "that fits, simulated tokens/s, needed TFLOP/s (6·N and causal attention), what bounds the "
      "step, the share of it in which the device computes nothing, and the plan.\n");
  for (const std::string& name : DeviceProfileNames()) {
    MILLRACE_ASSIGN_OR_RETURN(const DeviceProfile profile, FindDeviceProfile(name, DType::kBF16));
    absl::StrAppend(&text, "\n## ", name, "\n\n", profile.description, "; a host of ",
                    profile.host.cores, " cores and ", profile.host.memory_bytes >> 30,
                    " GiB, of which a job may take nine tenths.\n\n");
    for (const DeviceProfile::Source& source : profile.sources) {
      absl::StrAppend(&text, "- ", source.figure, ": ", source.sentence, "\n");
    }
    absl::StrAppend(&text,
                    "\n| model | recipe | tokens/s | TFLOP/s | bound by | idle | plan |\n"
                    "| --- | --- | ---: | ---: | --- | ---: | --- |\n");
    for (const Shape& shape : kShapes) {
      MILLRACE_ASSIGN_OR_RETURN(const std::string row, Row(shape, {.device = name}));
      text += row;
    }
  }
  return text;
}

}  // namespace millrace
