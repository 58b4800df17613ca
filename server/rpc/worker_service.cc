#include "server/rpc/worker_service.h"

#include <grpcpp/server_builder.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "engine/base/file.h"
#include "engine/base/status_macros.h"
#include "server/rpc/status_to_grpc.h"

namespace millrace {
namespace {

// Reports passed on and not yet stored, above which a stream is read no further.
constexpr int kMostUnderWay = 4096;

// What goes down one stream. Shared with callbacks that may outlive the stream.
class Outbox {
 public:
  void Send(const v1::WorkerCommand& command) {
    absl::MutexLock lock(&mutex_);
    commands_.push_back(command);
  }

  void BeginReport() {
    absl::MutexLock lock(&mutex_);
    ++under_way_;
  }

  // The answer of the sink to one call.
  void EndReport(const absl::StatusOr<int64_t>& stored) {
    absl::MutexLock lock(&mutex_);
    --under_way_;
    if (stored.ok()) {
      // 0 too: it tells a worker that it is served.
      acknowledge_ = std::max(acknowledge_, *stored);
    } else if (absl::IsNotFound(stored.status())) {
      v1::WorkerCommand cancel;
      cancel.mutable_cancel();
      commands_.push_back(cancel);
    } else {
      closed_ = true;
    }
  }

  // Waits until there is room for one more report. False when the stream is to end.
  bool WaitForRoom() {
    absl::MutexLock lock(&mutex_);
    const auto room = [this] {
      mutex_.AssertReaderHeld();
      return closed_ || under_way_ < kMostUnderWay;
    };
    mutex_.Await(absl::Condition(&room));
    return !closed_;
  }

  // Waits for something to send. False when the stream is to end.
  bool Next(v1::WorkerCommand* command) {
    absl::MutexLock lock(&mutex_);
    const auto ready = [this] {
      mutex_.AssertReaderHeld();
      return closed_ || !commands_.empty() || acknowledge_ > acknowledged_;
    };
    mutex_.Await(absl::Condition(&ready));
    if (closed_) return false;
    if (!commands_.empty()) {
      *command = std::move(commands_.front());
      commands_.pop_front();
      return true;
    }
    command->Clear();
    command->mutable_acknowledge()->set_sequence(acknowledge_);
    acknowledged_ = acknowledge_;
    return true;
  }

  void Close() {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
  }

 private:
  absl::Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  int under_way_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<v1::WorkerCommand> commands_ ABSL_GUARDED_BY(mutex_);
  int64_t acknowledge_ ABSL_GUARDED_BY(mutex_) = -1;
  int64_t acknowledged_ ABSL_GUARDED_BY(mutex_) = -1;
};

}  // namespace

grpc::Status WorkerServiceImpl::Connect(
    grpc::ServerContext* context,
    grpc::ServerReaderWriter<v1::WorkerCommand, v1::WorkerReport>* stream) {
  v1::WorkerReport report;
  if (!stream->Read(&report) || !report.has_hello()) {
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "the first message must be hello");
  }
  const std::string job_id = report.hello().job_id();
  const int32_t attempt = report.hello().attempt();
  auto outbox = std::make_shared<Outbox>();
  const absl::StatusOr<int64_t> connection = supervisor_->Attach(
      job_id, attempt, [outbox](const v1::WorkerCommand& command) { outbox->Send(command); });
  if (!connection.ok()) return ToGrpcStatus(connection.status());

  std::thread writer([&] {
    v1::WorkerCommand command;
    while (outbox->Next(&command) && stream->Write(command)) {
    }
    // Ends the reading below when it was not that which ended.
    context->TryCancel();
  });
  const auto pass_on = [&](std::vector<v1::WorkerReport> reports) {
    outbox->BeginReport();
    sink_->ApplyReports(
        job_id, attempt, std::move(reports),
        [outbox](const absl::StatusOr<int64_t>& stored) { outbox->EndReport(stored); });
  };
  pass_on({});
  while (stream->Read(&report)) {
    pass_on({report});
    if (!outbox->WaitForRoom()) break;
  }
  outbox->Close();
  writer.join();
  supervisor_->Detach(job_id, *connection);
  return grpc::Status::OK;
}

absl::StatusOr<std::unique_ptr<WorkerListener>> WorkerListener::Start(
    const std::string& socket_path, Supervisor* supervisor, WorkerReportSink* sink) {
  MILLRACE_ASSIGN_OR_RETURN(SocketAddress address, SocketAddress::Make(socket_path));
  std::unique_ptr<WorkerListener> listener(
      new WorkerListener(std::move(address), supervisor, sink));
  grpc::ServerBuilder builder;
  builder.AddListeningPort(listener->address_.address(), grpc::InsecureServerCredentials());
  builder.RegisterService(&listener->service_);
  // The socket is made for the daemon's user only; there is no moment at which others may use it.
  const mode_t mask = umask(0177);
  listener->server_ = builder.BuildAndStart();
  umask(mask);
  if (listener->server_ == nullptr) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", socket_path));
  }
  if (chmod(socket_path.c_str(), 0600) != 0) {
    return ErrnoToStatus(errno, "restrict access to", socket_path);
  }
  return listener;
}

WorkerListener::~WorkerListener() {
  if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
}

}  // namespace millrace
