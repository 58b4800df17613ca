#include "server/rpc/rpc_metrics.h"

#include <grpcpp/support/interceptor.h>

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace millrace {
namespace {

using grpc::experimental::InterceptionHookPoints;

class RpcMetrics : public grpc::experimental::Interceptor {
 public:
  // `method` is `/package.Service/Method`.
  RpcMetrics(Metrics* metrics, const std::string& method) : metrics_(metrics), start_(absl::Now()) {
    std::pair<std::string, std::string> parts =
        absl::StrSplit(absl::StripPrefix(method, "/"), absl::MaxSplits('/', 1));
    service_ = std::move(parts.first);
    method_ = std::move(parts.second);
  }

  // A call that ends without a status was cancelled by the client.
  ~RpcMetrics() override { Record(absl::StatusCode::kCancelled); }

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      Record(static_cast<absl::StatusCode>(methods->GetSendStatus().error_code()));
    }
    methods->Proceed();
  }

 private:
  void Record(absl::StatusCode code) {
    if (std::exchange(recorded_, true)) return;
    metrics_->Add(metric::kRpcHandled, {service_, method_, absl::StatusCodeToString(code)}, 1);
    metrics_->Observe(metric::kRpcSeconds, {service_, method_},
                      absl::ToDoubleSeconds(absl::Now() - start_));
  }

  Metrics* const metrics_;
  const absl::Time start_;
  std::string service_;
  std::string method_;
  bool recorded_ = false;
};

class Factory : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit Factory(Metrics* metrics) : metrics_(metrics) {}

  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override {
    return new RpcMetrics(metrics_, info->method());
  }

 private:
  Metrics* const metrics_;
};

}  // namespace

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeRpcMetrics(
    Metrics* metrics) {
  return std::make_unique<Factory>(metrics);
}

}  // namespace millrace
