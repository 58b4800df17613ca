// The daemon's end of WorkerService, on a server of its own: a Unix socket that only the daemon's
// user may use, apart from the public API.
//
//   MILLRACE_ASSIGN_OR_RETURN(auto listener,
//                             WorkerListener::Start(paths.WorkerSocket(), &supervisor, &manager));
#ifndef MILLRACE_SERVER_RPC_WORKER_SERVICE_H_
#define MILLRACE_SERVER_RPC_WORKER_SERVICE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "grpcpp/server.h"
#include "millrace/v1/worker.grpc.pb.h"
#include "server/jobs/worker_launcher.h"
#include "server/worker/socket_address.h"
#include "server/worker/supervisor.h"

namespace millrace {

// Passes reports to the sink as they come, and down the stream what it acknowledges and what the
// supervisor commands. One thread a stream reads, another writes; there are as many streams as
// running jobs.
class WorkerServiceImpl final : public v1::WorkerService::Service {
 public:
  // Both outlive this.
  WorkerServiceImpl(Supervisor* supervisor, WorkerReportSink* sink)
      : supervisor_(supervisor), sink_(sink) {}

  grpc::Status Connect(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::WorkerCommand, v1::WorkerReport>* stream) override;

 private:
  Supervisor* const supervisor_;
  WorkerReportSink* const sink_;
};

class WorkerListener {
 public:
  // Replaces a socket that an earlier daemon left at `socket_path`.
  static absl::StatusOr<std::unique_ptr<WorkerListener>> Start(const std::string& socket_path,
                                                               Supervisor* supervisor,
                                                               WorkerReportSink* sink);
  // Breaks all streams and waits for their ends. Workers go on and try to connect again.
  ~WorkerListener();

 private:
  WorkerListener(SocketAddress address, Supervisor* supervisor, WorkerReportSink* sink)
      : address_(std::move(address)), service_(supervisor, sink) {}

  const SocketAddress address_;
  WorkerServiceImpl service_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace millrace

#endif  // MILLRACE_SERVER_RPC_WORKER_SERVICE_H_
