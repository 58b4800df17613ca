// GenerationService: resolves names, and passes on what a model's process says (server/inference).
#ifndef MILLRACE_SERVER_RPC_GENERATION_SERVICE_H_
#define MILLRACE_SERVER_RPC_GENERATION_SERVICE_H_

#include <functional>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "millrace/v1/generation_service.grpc.pb.h"
#include "server/base/write_stream.h"
#include "server/inference/inference_pool.h"
#include "server/observe/metrics.h"

namespace millrace {

class GenerationServiceImpl : public v1::GenerationService::CallbackService {
 public:
  struct Options {
    // Both outlive the service.
    InferencePool* pool;
    Metrics* metrics;
    // What the request's `model` stands for. INVALID_ARGUMENT REQUEST_INVALID, NOT_FOUND.
    std::function<absl::StatusOr<ResolvedModel>(const std::string& name)> find_model;
    // The folder of a dataset that can be read; NOT_FOUND DATASET_NOT_FOUND.
    std::function<absl::StatusOr<std::string>(const std::string& dataset_id)> dataset_path;
  };
  explicit GenerationServiceImpl(Options options) : options_(std::move(options)) {}

  grpc::ServerWriteReactor<v1::GenerateTextResponse>* GenerateText(
      grpc::CallbackServerContext* context, const v1::GenerateTextRequest* request) override;
  grpc::ServerWriteReactor<v1::EvaluateTextResponse>* EvaluateText(
      grpc::CallbackServerContext* context, const v1::EvaluateTextRequest* request) override;

 private:
  absl::Status Generate(v1::GenerateTextRequest request,
                        WriteStream<v1::GenerateTextResponse>& stream);
  absl::Status Evaluate(v1::EvaluateTextRequest request,
                        WriteStream<v1::EvaluateTextResponse>& stream);

  // Makes the call `open` on the process of request's model, and writes what it says to `stream`,
  // after `pass` has looked at it.
  template <typename Request, typename Response, typename Open>
  absl::Status Forward(Request request, WriteStream<Response>& stream, Open open,
                       absl::FunctionRef<void(const ResolvedModel&, Response*)> pass);

  const Options options_;
};

}  // namespace millrace

#endif  // MILLRACE_SERVER_RPC_GENERATION_SERVICE_H_
