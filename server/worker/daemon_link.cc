#include "server/worker/daemon_link.h"

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "millrace/v1/worker.grpc.pb.h"
#include "server/worker/socket_address.h"

namespace millrace {

DaemonLink::DaemonLink(Options options, ReportBuffer* reports,
                       std::function<void(const v1::WorkerCommand&)> on_command)
    : options_(std::move(options)), reports_(reports), on_command_(std::move(on_command)) {
  thread_ = std::thread([this] { Run(); });
}

DaemonLink::~DaemonLink() {
  {
    absl::MutexLock lock(&mutex_);
    ending_ = true;
    if (current_ != nullptr) current_->TryCancel();
  }
  reports_->Interrupt();
  thread_.join();
}

void DaemonLink::Run() {
  absl::Duration backoff = options_.first_backoff;
  while (true) {
    grpc::ClientContext context;
    {
      absl::MutexLock lock(&mutex_);
      if (ending_) return;
      current_ = &context;
    }
    const bool was_served = RunStream(context);
    absl::MutexLock lock(&mutex_);
    current_ = nullptr;
    if (was_served) backoff = options_.first_backoff;
    if (mutex_.AwaitWithTimeout(absl::Condition(&ending_), backoff)) return;
    backoff = std::min(2 * backoff, options_.longest_backoff);
  }
}

bool DaemonLink::RunStream(grpc::ClientContext& context) {
  absl::StatusOr<SocketAddress> address = SocketAddress::Make(options_.socket);
  if (!address.ok()) return false;
  // A channel of its own each time: a shared one would wait out its own back-off before it noticed
  // that the daemon is back.
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  auto stub = v1::WorkerService::NewStub(
      grpc::CreateCustomChannel(address->address(), grpc::InsecureChannelCredentials(), arguments));
  auto stream = stub->Connect(&context);

  reports_->Resume();
  {
    // The link may have been ended just before Resume().
    absl::MutexLock lock(&mutex_);
    if (ending_) reports_->Interrupt();
  }
  bool was_served = false;
  std::thread reader([&] {
    v1::WorkerCommand command;
    while (stream->Read(&command)) {
      was_served = true;
      if (command.has_acknowledge()) {
        reports_->Acknowledge(command.acknowledge().sequence());
      } else {
        on_command_(command);
      }
    }
    reports_->Interrupt();
  });

  v1::WorkerReport report;
  report.mutable_hello()->set_job_id(options_.job_id);
  report.mutable_hello()->set_attempt(options_.attempt);
  report.mutable_hello()->set_pid(getpid());
  int64_t sent = 0;
  while (stream->Write(report) && reports_->WaitForNext(sent, &report)) sent = report.sequence();
  context.TryCancel();
  reader.join();
  stream->Finish();
  return was_served;
}

}  // namespace millrace
