// Models, step shapes and plans drawn at random, small enough that thousands are quick.
#ifndef MILLRACE_TESTS_ENGINE_SCHEDULE_RANDOM_PLANS_H_
#define MILLRACE_TESTS_ENGINE_SCHEDULE_RANDOM_PLANS_H_

#include <algorithm>
#include <random>

#include "engine/schedule/plan.h"

namespace millrace {

inline ScheduledModel RandomModel(std::mt19937& random) {
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  ScheduledModel model;
  ModelSpec& spec = model.spec;
  spec.vocab_size = pick(2, 300);
  spec.head_dim = 2 * pick(1, 8);
  spec.num_kv_heads = pick(1, 3);
  spec.num_heads = spec.num_kv_heads * pick(1, 3);
  spec.hidden_size = spec.num_heads * spec.head_dim;
  spec.intermediate_size = pick(1, 100);
  spec.num_layers = pick(1, 7);
  spec.max_positions = 512;
  spec.tied_embeddings = pick(0, 1) == 1;
  spec.position = pick(0, 1) == 1 ? PositionKind::kRotary : PositionKind::kLearned;
  spec.norm = pick(0, 1) == 1 ? NormKind::kRmsNorm : NormKind::kLayerNorm;
  spec.norm_bias = spec.norm == NormKind::kLayerNorm;
  spec.rotary_width = spec.head_dim;
  spec.gated_mlp = pick(0, 1) == 1;
  spec.query_key_norm = static_cast<QueryKeyNorm>(pick(0, 2));
  spec.parallel_residual = pick(0, 3) == 0;
  spec.norm_after = !spec.parallel_residual && pick(0, 1) == 1;
  spec.norm_before = !spec.norm_after || pick(0, 1) == 1;
  if (pick(0, 1) == 1) {
    spec.window = pick(1, 32);
    for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
      spec.windowed.push_back(pick(0, 1) == 1);
    }
    spec.window_rotary = spec.rotary;
  }
  model.compute_dtype = pick(0, 1) == 1 ? DType::kBF16 : DType::kF32;
  model.layouts = MakeSlabLayouts(spec);
  model.gradient_dtypes.assign(model.layouts.size(), model.compute_dtype);
  model.gradient_dtypes[0] = DType::kF32;
  model.ops_workspace_bytes = 4096 * pick(0, 3);
  return model;
}

inline StepShape RandomShape(std::mt19937& random) {
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  StepShape shape;
  shape.micro_batches = pick(1, 4);
  shape.longest_document = pick(1, 32);
  shape.tokens_per_micro_batch = shape.longest_document * pick(1, 4);
  shape.token_chunk = pick(1, static_cast<int>(shape.tokens_per_micro_batch));
  shape.vocab_tile = pick(0, 1) == 1 ? pick(1, 100) : 0;
  shape.clip = pick(0, 1) == 1;
  return shape;
}

// Any plan of `shape` that there can be.
inline Plan RandomPlan(const ScheduledModel& model, const StepShape& shape, std::mt19937& random) {
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  Plan plan;
  plan.shape = shape;
  plan.unified = pick(0, 1) == 1;
  plan.order = pick(0, 1) == 1 ? Order::kLayerMajor : Order::kBatchMajor;
  plan.weight_slots = static_cast<int>(pick(1, 4));
  plan.resident_units = static_cast<int>(pick(0, model.num_blocks()));
  plan.reuse_at_turn = pick(0, 1) == 1;
  const int64_t passes =
      model.num_blocks() * (plan.order == Order::kBatchMajor ? 1 : shape.micro_batches);
  plan.kept_passes = pick(0, passes);
  plan.selective_passes = pick(0, passes - plan.kept_passes);
  plan.offloaded_passes = pick(0, passes);
  if (shape.vocab_tile > 0 && plan.order == Order::kLayerMajor && pick(0, 1) == 1) {
    plan.head = HeadPlacement::kTiled;
  }
  plan.update_time = shape.clip ? UpdateTime::kBeforeNextUpload : UpdateTime::kAsGradientLands;
  return plan;
}

}  // namespace millrace

#endif  // MILLRACE_TESTS_ENGINE_SCHEDULE_RANDOM_PLANS_H_
