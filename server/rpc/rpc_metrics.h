// Counts every call by service, method and code, and its time.
#ifndef MILLRACE_SERVER_RPC_RPC_METRICS_H_
#define MILLRACE_SERVER_RPC_RPC_METRICS_H_

#include <grpcpp/support/server_interceptor.h>

#include <memory>

#include "server/observe/metrics.h"

namespace millrace {

// `metrics` outlives the server.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeRpcMetrics(
    Metrics* metrics);

}  // namespace millrace

#endif  // MILLRACE_SERVER_RPC_RPC_METRICS_H_
