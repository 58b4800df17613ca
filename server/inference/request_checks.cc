#include "server/inference/request_checks.h"

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/errors.h"

namespace millrace {
namespace {

constexpr int kMostPrompts = 1024;
constexpr int kMostStops = 16;

class Checks {
 public:
  void Require(bool holds, const std::string& field, const std::string& description) {
    if (!holds) violations_.push_back({field, description});
  }

  // `what` the value must be.
  template <typename T>
  void Bound(bool holds, const std::string& field, T value, const char* what) {
    Require(holds, field, absl::StrCat(value, " is out of range; give ", what));
  }

  void Compute(const std::string& compute) {
    Require(compute.empty() || compute == "bf16" || compute == "f32", "compute",
            absl::StrCat("`", compute, "` is not known; give bf16 or f32"));
  }

  absl::Status Finish() const {
    return violations_.empty() ? absl::OkStatus()
                               : MakeFieldError(ErrorReason::kConfigInvalid, violations_);
  }

 private:
  std::vector<FieldViolation> violations_;
};

void CheckSampling(const v1::SamplingOptions& options, Checks* checks) {
  if (options.has_temperature()) {
    const double value = options.temperature();
    checks->Bound(std::isfinite(value) && value >= 0, "sampling.temperature", value,
                  "0 (greedy) or more");
  }
  if (options.has_top_k()) {
    checks->Bound(options.top_k() >= 0, "sampling.top_k", options.top_k(), "0 (all) or more");
  }
  if (options.has_top_p()) {
    checks->Bound(options.top_p() > 0 && options.top_p() <= 1, "sampling.top_p", options.top_p(),
                  "more than 0, and at most 1");
  }
  if (options.has_min_p()) {
    checks->Bound(options.min_p() >= 0 && options.min_p() < 1, "sampling.min_p", options.min_p(),
                  "0 or more, and less than 1");
  }
  if (options.has_repetition_penalty()) {
    const double value = options.repetition_penalty();
    checks->Bound(std::isfinite(value) && value > 0, "sampling.repetition_penalty", value,
                  "more than 0; 1 is off");
  }
}

}  // namespace

absl::Status CheckRequest(const v1::GenerateTextRequest& request) {
  Checks checks;
  checks.Bound(request.prompts_size() >= 1 && request.prompts_size() <= kMostPrompts, "prompts",
               request.prompts_size(), "1 to 1024 prompts");
  checks.Bound(request.max_tokens() >= 0, "max_tokens", request.max_tokens(), "1 or more");
  CheckSampling(request.sampling(), &checks);
  checks.Bound(request.stop_size() <= kMostStops, "stop", request.stop_size(),
               "at most 16 strings");
  for (const std::string& stop : request.stop()) {
    checks.Require(!stop.empty(), "stop", "an empty string would end every text");
  }
  checks.Compute(request.compute());
  return checks.Finish();
}

absl::Status CheckRequest(const v1::EvaluateTextRequest& request) {
  Checks checks;
  checks.Bound(request.sequence_length() == 0 || request.sequence_length() >= 2, "sequence_length",
               request.sequence_length(), "2 or more");
  checks.Bound(request.max_sequences() >= 0, "max_sequences", request.max_sequences(),
               "1 or more; 0 is all");
  checks.Compute(request.compute());
  return checks.Finish();
}

}  // namespace millrace
