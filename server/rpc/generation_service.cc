#include "server/rpc/generation_service.h"

#include <sys/stat.h>

#include <memory>

#include "engine/base/status_macros.h"
#include "server/base/errors.h"
#include "server/base/resource_names.h"
#include "server/inference/request_checks.h"
#include "server/rpc/status_to_grpc.h"

namespace millrace {
namespace {

bool IsThere(const std::string& path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0;
}

const char* ResultOf(const absl::Status& status) {
  return status.ok() ? "ok" : absl::IsCancelled(status) ? "cancelled" : "error";
}

}  // namespace

grpc::ServerWriteReactor<v1::GenerateTextResponse>* GenerationServiceImpl::GenerateText(
    grpc::CallbackServerContext*, const v1::GenerateTextRequest* request) {
  using Stream = WriteStream<v1::GenerateTextResponse>;
  return Stream::Start(
      [this, request = *request](Stream& stream) {
        const absl::Status status = Generate(request, stream);
        options_.metrics->Add(metric::kInferenceCalls, {"generate", ResultOf(status)}, 1);
        return status;
      },
      ToGrpcStatus);
}

grpc::ServerWriteReactor<v1::EvaluateTextResponse>* GenerationServiceImpl::EvaluateText(
    grpc::CallbackServerContext*, const v1::EvaluateTextRequest* request) {
  using Stream = WriteStream<v1::EvaluateTextResponse>;
  return Stream::Start(
      [this, request = *request](Stream& stream) {
        const absl::Status status = Evaluate(request, stream);
        options_.metrics->Add(metric::kInferenceCalls, {"evaluate", ResultOf(status)}, 1);
        return status;
      },
      ToGrpcStatus);
}

template <typename Request, typename Response, typename Open>
absl::Status GenerationServiceImpl::Forward(
    Request request, WriteStream<Response>& stream, Open open,
    absl::FunctionRef<void(const ResolvedModel&, Response*)> pass) {
  const std::string name = request.model();
  bool written = false;
  const auto call = [&](const ResolvedModel& model) {
    request.set_model(model.path);
    grpc::ClientContext context;
    stream.WhenCancelled([&context] { context.TryCancel(); });
    const absl::Status status = options_.pool->Call(
        model, request.compute(), &context, [&](v1::InferenceService::Stub& stub) {
          const std::unique_ptr<grpc::ClientReader<Response>> reader =
              open(stub, &context, request);
          Response response;
          while (reader->Read(&response)) {
            pass(model, &response);
            written = true;
            if (!stream.Write(response)) context.TryCancel();
          }
          return reader->Finish();
        });
    stream.WhenCancelled(nullptr);
    return status;
  };
  MILLRACE_ASSIGN_OR_RETURN(const ResolvedModel model, options_.find_model(name));
  const absl::Status status = call(model);
  if (status.ok() || written || stream.cancelled() || IsThere(model.path)) return status;
  // A job has replaced the checkpoint by a newer one while it was being loaded.
  MILLRACE_ASSIGN_OR_RETURN(const ResolvedModel newer, options_.find_model(name));
  return call(newer);
}

absl::Status GenerationServiceImpl::Generate(v1::GenerateTextRequest request,
                                             WriteStream<v1::GenerateTextResponse>& stream) {
  MILLRACE_RETURN_IF_ERROR(CheckRequest(request));
  return Forward<v1::GenerateTextRequest, v1::GenerateTextResponse>(
      std::move(request), stream,
      [](v1::InferenceService::Stub& stub, grpc::ClientContext* context,
         const v1::GenerateTextRequest& sent) { return stub.GenerateText(context, sent); },
      [this](const ResolvedModel& model, v1::GenerateTextResponse* response) {
        if (response->has_started()) response->mutable_started()->set_model(model.name);
        if (response->has_piece()) {
          options_.metrics->Add(metric::kGeneratedTokens, {}, response->piece().tokens_size());
        }
        if (response->has_finished()) {
          const auto& finished = response->finished();
          options_.metrics->Add(metric::kPromptTokens, {},
                                static_cast<double>(finished.prompt_tokens()));
          options_.metrics->Add(metric::kGenerationSeconds, {"prompt"}, finished.prompt_seconds());
          options_.metrics->Add(metric::kGenerationSeconds, {"text"},
                                finished.generation_seconds());
        }
      });
}

absl::Status GenerationServiceImpl::Evaluate(v1::EvaluateTextRequest request,
                                             WriteStream<v1::EvaluateTextResponse>& stream) {
  MILLRACE_RETURN_IF_ERROR(CheckRequest(request));
  MILLRACE_ASSIGN_OR_RETURN(const std::string dataset,
                            ParseDatasetName("dataset", request.dataset()));
  MILLRACE_ASSIGN_OR_RETURN(*request.mutable_dataset(), options_.dataset_path(dataset));
  const absl::Status status = Forward<v1::EvaluateTextRequest, v1::EvaluateTextResponse>(
      std::move(request), stream,
      [](v1::InferenceService::Stub& stub, grpc::ClientContext* context,
         const v1::EvaluateTextRequest& sent) { return stub.EvaluateText(context, sent); },
      [](const ResolvedModel& model, v1::EvaluateTextResponse* response) {
        response->set_model(model.name);
      });
  // It may have been deleted meanwhile, which is no fault of the model.
  if (!status.ok()) MILLRACE_RETURN_IF_ERROR(options_.dataset_path(dataset).status());
  return status;
}

}  // namespace millrace
