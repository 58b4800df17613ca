#include "server/worker/plan_conversion.h"

#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

namespace millrace {
namespace {

void ExpectProto(const v1::JobPlan& plan, const std::string& text) {
  v1::JobPlan expected;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &expected));
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(plan, expected))
      << plan.DebugString();
}

JobPlan MakeJobPlan() {
  JobPlan plan;
  plan.fits = true;
  plan.device = "h200";
  plan.device_budget_bytes = 1000;
  plan.host_budget_bytes = 2000;
  plan.device_memory = {{"slots", 300}};
  plan.host_memory = {{"weights", 400}, {"optimizer", 500}};
  plan.plan.shape.tokens_per_micro_batch = 64;
  plan.choices = {{"weight_slots", "3", "2", 0.5, true}};
  plan.tokens_per_step = 128;
  plan.step_seconds = 2;
  plan.tokens_per_second = 64;
  plan.model_flops = 1e12;
  plan.bound = Bound::kHostMemory;
  plan.device_idle_ratio = 0.25;
  plan.stalls = {.weights = 1, .gradients = 2, .optimizer = 3, .activations = 4, .data = 5};
  plan.largest_sequence_length = 4096;
  plan.largest_micro_batch_tokens = 8192;
  plan.assumptions = {"nothing else runs"};
  plan.trace_json = "{}";
  return plan;
}

TEST(PlanConversion, CarriesEveryField) {
  ExpectProto(ToProto(MakeJobPlan()), R"(
      fits: true device: "h200" device_budget_bytes: 1000 host_budget_bytes: 2000
      device_memory { purpose: "slots" bytes: 300 }
      host_memory { purpose: "weights" bytes: 400 }
      host_memory { purpose: "optimizer" bytes: 500 }
      choices { name: "weight_slots" value: "3" next_best: "2" next_best_extra_seconds: 0.5
                fixed: true }
      tokens_per_step: 128 tokens_per_micro_batch: 64 step_seconds: 2 tokens_per_second: 64
      model_flops: 1e12 bound: HOST_MEMORY device_idle_ratio: 0.25
      stalls { weights_seconds: 1 gradients_seconds: 2 optimizer_seconds: 3 activations_seconds: 4
               data_seconds: 5 }
      largest_sequence_length: 4096 largest_micro_batch_tokens: 8192
      assumptions: "nothing else runs")");
}

TEST(PlanConversion, APlanThatDoesNotFitSaysByHowMuchAndNothingOfItsSpeed) {
  JobPlan plan = MakeJobPlan();
  plan.fits = false;
  plan.shortfall = "100 bytes too much; lower x";
  ExpectProto(ToProto(plan), R"(
      device: "h200" device_budget_bytes: 1000 host_budget_bytes: 2000
      device_memory { purpose: "slots" bytes: 300 }
      host_memory { purpose: "weights" bytes: 400 }
      host_memory { purpose: "optimizer" bytes: 500 }
      shortfall: "100 bytes too much; lower x")");
}

}  // namespace
}  // namespace millrace
