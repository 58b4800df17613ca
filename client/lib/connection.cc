#include "client/lib/connection.h"

#include <chrono>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "client/lib/backoff.h"
#include "client/lib/errors.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"

namespace millrace {
namespace {

// The daemon permits a ping every ten seconds, and answers more of them with GOAWAY. Between one
// and the other a watcher learns within this time that its daemon's box is gone.
constexpr int kKeepaliveMilliseconds = 60 * 1000;
constexpr int kKeepaliveTimeoutMilliseconds = 20 * 1000;

constexpr int kMaxReceivedBytes = 64 << 20;

absl::Status CheckAddress(const std::string& address) {
  if (absl::StartsWith(address, "unix:") && address.size() > 5) return absl::OkStatus();
  size_t colon = address.rfind(':');
  int port = 0;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(address.substr(colon + 1), &port) || port < 1 || port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", address, "\" is not the address of a daemon; expected HOST:PORT, such as ",
        kDefaultAddress));
  }
  return absl::OkStatus();
}

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMilliseconds);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMilliseconds);
  // Tries are ours to space; the channel must be ready to connect whenever one comes.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5000);
  // A plan's trace can be large.
  arguments.SetMaxReceiveMessageSize(kMaxReceivedBytes);
  // A daemon on loopback is not behind the proxy that the environment names for the web.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Connection>> Connection::Open(const Options& options) {
  absl::Status status = CheckAddress(options.address);
  if (!status.ok()) return status;
  return std::unique_ptr<Connection>(new Connection(options));
}

Connection::Connection(const Options& options) : options_(options) {
  std::shared_ptr<grpc::Channel> channel = MakeChannel(options.address);
  jobs_ = v1::JobService::NewStub(channel);
  datasets_ = v1::DatasetService::NewStub(channel);
  models_ = v1::ModelService::NewStub(channel);
  tokenizers_ = v1::TokenizerService::NewStub(channel);
  checkpoints_ = v1::CheckpointService::NewStub(channel);
  node_ = v1::NodeService::NewStub(channel);
  generation_ = v1::GenerationService::NewStub(channel);
}

absl::Status Connection::Retry(absl::Duration deadline,
                               const std::function<grpc::Status(grpc::ClientContext*)>& attempt) {
  if (deadline == absl::ZeroDuration()) deadline = options_.call_deadline;
  Backoff backoff(absl::Milliseconds(50), absl::Milliseconds(500));
  absl::Time give_up = absl::Now() + options_.max_unavailable;
  for (;;) {
    if (options_.stop.stop_requested()) return absl::CancelledError("interrupted");
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + deadline));
    absl::Status status;
    {
      CancelOnStop cancel(options_.stop, &context);
      status = StatusFromGrpc(attempt(&context));
    }
    if (status.code() != absl::StatusCode::kUnavailable) return Explain(status);
    absl::Duration wait = backoff.Next(RetryDelay(status).value_or(absl::ZeroDuration()));
    if (absl::Now() + wait > give_up) return Explain(status);
    if (!WaitUnlessStopped(options_.stop, wait)) return absl::CancelledError("interrupted");
  }
}

absl::StatusOr<v1::Job> Connection::GetJob(const std::string& name) {
  v1::GetJobRequest request;
  request.set_name(name);
  return Call(jobs(), &v1::JobService::StubInterface::GetJob, request);
}

absl::Status Connection::Explain(const absl::Status& status) const {
  // With a reason the words are the daemon's own.
  if (!ErrorReason(status).empty()) return status;
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
      return WithMessage(
          status, absl::StrCat("no millraced answers at ", options_.address,
                               "; start it there (`millraced --data_dir DIR`), or name another "
                               "with --server HOST:PORT or MILLRACE_SERVER"));
    case absl::StatusCode::kDeadlineExceeded:
      return WithMessage(status, absl::StrCat("millraced at ", options_.address,
                                              " did not answer in time; is it stopped, or the box "
                                              "overloaded?"));
    case absl::StatusCode::kUnimplemented:
      return WithMessage(status,
                         absl::StrCat("what answers at ", options_.address,
                                      " does not serve this call: it is another program, or an "
                                      "older millraced (",
                                      std::string(status.message()), ")"));
    case absl::StatusCode::kCancelled:
      if (options_.stop.stop_requested()) return absl::CancelledError("interrupted");
      return status;
    default:
      return status;
  }
}

}  // namespace millrace
