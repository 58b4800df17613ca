// Answers of unary methods in the callback API.
//
//   return FinishUnary(context, [&]() -> absl::Status {
//     MILLRACE_ASSIGN_OR_RETURN(const std::string id, ParseJobName("name", request->name()));
//     MILLRACE_ASSIGN_OR_RETURN(*response, manager_->GetJob(id));
//     return absl::OkStatus();
//   });
#ifndef MILLRACE_SERVER_RPC_UNARY_H_
#define MILLRACE_SERVER_RPC_UNARY_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <exception>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/rpc/executor.h"
#include "server/rpc/status_to_grpc.h"

namespace millrace {

// What `handler` returns. An exception (of a library: memory, threads) is INTERNAL: a call that
// ends in an error, not a daemon that ends.
template <typename Handler>
absl::Status CallHandler(Handler& handler) {
  try {
    return handler();
  } catch (const std::exception& exception) {
    return absl::InternalError(absl::StrCat("the call failed: ", exception.what()));
  }
}

// Runs `handler` here; it is quick.
template <typename Handler>
grpc::ServerUnaryReactor* FinishUnary(grpc::CallbackServerContext* context, Handler handler) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(CallHandler(handler)));
  return reactor;
}

// Runs `handler` on the executor. Request and response live until the call is finished.
template <typename Handler>
grpc::ServerUnaryReactor* FinishUnaryOn(Executor* executor, grpc::CallbackServerContext* context,
                                        Handler handler) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  executor->Run([reactor, handler = std::move(handler)]() mutable {
    reactor->Finish(ToGrpcStatus(CallHandler(handler)));
  });
  return reactor;
}

}  // namespace millrace

#endif  // MILLRACE_SERVER_RPC_UNARY_H_
