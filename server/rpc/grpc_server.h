// The gRPC endpoint: address, limits, keepalive, health and reflection.
//
//   MILLRACE_ASSIGN_OR_RETURN(auto server, GrpcServer::Start({.listen = "127.0.0.1:0"},
//                                                            {&jobs, &node}, nullptr));
//   … server->address() …
#ifndef MILLRACE_SERVER_RPC_GRPC_SERVER_H_
#define MILLRACE_SERVER_RPC_GRPC_SERVER_H_

#include <grpcpp/server.h>
#include <grpcpp/support/server_interceptor.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace millrace {

class GrpcServer {
 public:
  struct Options {
    // host:port; port 0 is any free one.
    std::string listen;
  };

  // Serves as soon as it returns. Services outlive the server. `interceptors` may be empty.
  // UNAVAILABLE names the address and why it cannot be had.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(
      const Options& options, const std::vector<grpc::Service*>& services,
      std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>>
          interceptors);
  // Shuts down.
  ~GrpcServer();

  // As bound.
  const std::string& address() const { return address_; }

  // What the health service says; SERVING from the start.
  void SetServing(bool serving);

  // Refuses new calls, ends those that have not ended after `grace`. Once.
  void Shutdown(absl::Duration grace);

 private:
  GrpcServer() = default;

  std::string address_;
  std::unique_ptr<grpc::Server> server_;
  bool is_shut_down_ = false;
};

}  // namespace millrace

#endif  // MILLRACE_SERVER_RPC_GRPC_SERVER_H_
