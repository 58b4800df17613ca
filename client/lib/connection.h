// A connection to one daemon, and calls on it.
//
//   absl::StatusOr<std::unique_ptr<Connection>> connection = Connection::Open({});
//   absl::StatusOr<v1::Job> job = (*connection)->GetJob("jobs/plays");
//
// Thread-safe. Calls block. Every unary call has a deadline, and is tried again while the daemon is
// UNAVAILABLE, with growing waits; all of them may be repeated without harm. When the stop token is
// triggered, calls in progress end with CANCELLED.
#ifndef MILLRACE_CLIENT_LIB_CONNECTION_H_
#define MILLRACE_CLIENT_LIB_CONNECTION_H_

#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/client_context.h"
#include "millrace/v1/checkpoint_service.grpc.pb.h"
#include "millrace/v1/dataset_service.grpc.pb.h"
#include "millrace/v1/generation_service.grpc.pb.h"
#include "millrace/v1/job_service.grpc.pb.h"
#include "millrace/v1/model_service.grpc.pb.h"
#include "millrace/v1/node_service.grpc.pb.h"
#include "millrace/v1/tokenizer_service.grpc.pb.h"

namespace millrace {

inline constexpr char kDefaultAddress[] = "127.0.0.1:7473";

class Connection {
 public:
  struct Options {
    // `host:port`, or `unix:PATH`.
    std::string address = kDefaultAddress;
    // For one try of a unary call.
    absl::Duration call_deadline = absl::Seconds(30);
    // How long a unary call is tried again while nobody answers. Short, so that a daemon that is
    // not running is told at once.
    absl::Duration max_unavailable = absl::Seconds(1);
    // How long a stream that has broken tries to come back: enough for a daemon to be restarted,
    // or a box to be booted.
    absl::Duration max_stream_unavailable = absl::Minutes(10);
    std::stop_token stop;
  };

  // Does not connect yet. InvalidArgument when the address cannot be one.
  static absl::StatusOr<std::unique_ptr<Connection>> Open(const Options& options);

  v1::JobService::StubInterface& jobs() { return *jobs_; }
  v1::DatasetService::StubInterface& datasets() { return *datasets_; }
  v1::ModelService::StubInterface& models() { return *models_; }
  v1::TokenizerService::StubInterface& tokenizers() { return *tokenizers_; }
  v1::CheckpointService::StubInterface& checkpoints() { return *checkpoints_; }
  v1::NodeService::StubInterface& node() { return *node_; }
  v1::GenerationService::StubInterface& generation() { return *generation_; }
  const Options& options() const { return options_; }

  // One unary method:
  //   Call(c.jobs(), &v1::JobService::StubInterface::PauseJob, request)
  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> Call(
      Stub& stub, grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
      const Request& request, absl::Duration deadline = absl::ZeroDuration()) {
    Response response;
    absl::Status status = Retry(deadline, [&](grpc::ClientContext* context) {
      return (stub.*method)(context, request, &response);
    });
    if (!status.ok()) return status;
    return response;
  }

  absl::StatusOr<v1::Job> GetJob(const std::string& name);

  // What a person should read when `status`, the end of a call on this connection, has no better
  // message: a daemon that does not answer is named with its address and how to start it.
  absl::Status Explain(const absl::Status& status) const;

 private:
  explicit Connection(const Options& options);
  absl::Status Retry(absl::Duration deadline,
                     const std::function<grpc::Status(grpc::ClientContext*)>& attempt);

  Options options_;
  std::unique_ptr<v1::JobService::StubInterface> jobs_;
  std::unique_ptr<v1::DatasetService::StubInterface> datasets_;
  std::unique_ptr<v1::ModelService::StubInterface> models_;
  std::unique_ptr<v1::TokenizerService::StubInterface> tokenizers_;
  std::unique_ptr<v1::CheckpointService::StubInterface> checkpoints_;
  std::unique_ptr<v1::NodeService::StubInterface> node_;
  std::unique_ptr<v1::GenerationService::StubInterface> generation_;
};

// Ends a call in progress when the token is triggered, for as long as this lives.
class CancelOnStop {
 public:
  CancelOnStop(std::stop_token stop, grpc::ClientContext* context)
      : callback_(std::move(stop), [context] { context->TryCancel(); }) {}

 private:
  std::stop_callback<std::function<void()>> callback_;
};

}  // namespace millrace

#endif  // MILLRACE_CLIENT_LIB_CONNECTION_H_
