#include "server/inference/request_checks.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "server/base/errors.h"

namespace millrace {
namespace {

// The field that is to blame; empty for none.
template <typename Request>
std::string Blamed(Request request, const std::function<void(Request&)>& change) {
  change(request);
  const absl::Status status = CheckRequest(request);
  if (status.ok()) return "";
  EXPECT_EQ(ReasonOf(status), "CONFIG_INVALID");
  return FieldViolationsOf(status).at(0).field;
}

std::string Generate(const std::function<void(v1::GenerateTextRequest&)>& change) {
  v1::GenerateTextRequest request;
  request.add_prompts("Once");
  return Blamed<v1::GenerateTextRequest>(request, change);
}

TEST(RequestChecksTest, EachFieldOfAGenerationHasItsBounds) {
  using Request = v1::GenerateTextRequest;
  EXPECT_EQ(Generate([](Request&) {}), "");
  EXPECT_EQ(Generate([](Request& r) { r.clear_prompts(); }), "prompts");
  EXPECT_EQ(Generate([](Request& r) { r.set_max_tokens(-1); }), "max_tokens");
  EXPECT_EQ(Generate([](Request& r) { r.mutable_sampling()->set_temperature(-0.1); }),
            "sampling.temperature");
  EXPECT_EQ(Generate([](Request& r) { r.mutable_sampling()->set_temperature(0); }), "");
  EXPECT_EQ(Generate([](Request& r) { r.mutable_sampling()->set_top_k(-1); }), "sampling.top_k");
  EXPECT_EQ(Generate([](Request& r) { r.mutable_sampling()->set_top_p(0); }), "sampling.top_p");
  EXPECT_EQ(Generate([](Request& r) { r.mutable_sampling()->set_min_p(1); }), "sampling.min_p");
  EXPECT_EQ(Generate([](Request& r) { r.mutable_sampling()->set_repetition_penalty(0); }),
            "sampling.repetition_penalty");
  EXPECT_EQ(Generate([](Request& r) { r.add_stop(""); }), "stop");
  EXPECT_EQ(Generate([](Request& r) {
              for (int i = 0; i < 17; ++i) r.add_stop("x");
            }),
            "stop");
  EXPECT_EQ(Generate([](Request& r) { r.set_compute("f16"); }), "compute");
}

TEST(RequestChecksTest, EachFieldOfAnEvaluationHasItsBounds) {
  using Request = v1::EvaluateTextRequest;
  const auto blamed = [](const std::function<void(Request&)>& change) {
    return Blamed<Request>({}, change);
  };
  EXPECT_EQ(blamed([](Request&) {}), "");
  EXPECT_EQ(blamed([](Request& r) { r.set_sequence_length(1); }), "sequence_length");
  EXPECT_EQ(blamed([](Request& r) { r.set_max_sequences(-1); }), "max_sequences");
  EXPECT_EQ(blamed([](Request& r) { r.set_compute("x"); }), "compute");
}

}  // namespace
}  // namespace millrace
