// Calls of GenerationService. They are not tried again: what has been said cannot be taken back.
#ifndef MILLRACE_CLIENT_LIB_GENERATION_H_
#define MILLRACE_CLIENT_LIB_GENERATION_H_

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "client/lib/connection.h"
#include "millrace/v1/generation.pb.h"

namespace millrace {

// Calls `on_response` with each message. CANCELLED when the connection's stop token is triggered.
absl::Status GenerateText(Connection& connection, const v1::GenerateTextRequest& request,
                          absl::FunctionRef<void(const v1::GenerateTextResponse&)> on_response);
absl::Status EvaluateText(Connection& connection, const v1::EvaluateTextRequest& request,
                          absl::FunctionRef<void(const v1::EvaluateTextResponse&)> on_response);

}  // namespace millrace

#endif  // MILLRACE_CLIENT_LIB_GENERATION_H_
