// What a generation or evaluation request must be, whatever the model.
#ifndef MILLRACE_SERVER_INFERENCE_REQUEST_CHECKS_H_
#define MILLRACE_SERVER_INFERENCE_REQUEST_CHECKS_H_

#include "absl/status/status.h"
#include "millrace/v1/generation.pb.h"

namespace millrace {

// INVALID_ARGUMENT CONFIG_INVALID with a violation for each field that is out of its bounds.
absl::Status CheckRequest(const v1::GenerateTextRequest& request);
absl::Status CheckRequest(const v1::EvaluateTextRequest& request);

}  // namespace millrace

#endif  // MILLRACE_SERVER_INFERENCE_REQUEST_CHECKS_H_
