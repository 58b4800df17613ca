// InferenceService over one model.
#ifndef MILLRACE_SERVER_WORKER_INFER_SERVICE_H_
#define MILLRACE_SERVER_WORKER_INFER_SERVICE_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "engine/train/inference_model.h"
#include "millrace/v1/worker.grpc.pb.h"
#include "server/base/write_stream.h"

namespace millrace {

// Errors have the engine's codes; those of a field begin with `field: `.
class InferServiceImpl : public v1::InferenceService::CallbackService {
 public:
  explicit InferServiceImpl(std::string token_folder) : token_folder_(std::move(token_folder)) {}

  // What calls wait for; once.
  void SetModel(absl::StatusOr<std::unique_ptr<InferenceModel>> model, double load_seconds);

  grpc::ServerWriteReactor<v1::GenerateTextResponse>* GenerateText(
      grpc::CallbackServerContext* context, const v1::GenerateTextRequest* request) override;
  grpc::ServerWriteReactor<v1::EvaluateTextResponse>* EvaluateText(
      grpc::CallbackServerContext* context, const v1::EvaluateTextRequest* request) override;

 private:
  using GenerateStream = WriteStream<v1::GenerateTextResponse>;
  using EvaluateStream = WriteStream<v1::EvaluateTextResponse>;

  // Once there is one.
  absl::StatusOr<const InferenceModel*> Model();
  absl::Status Generate(const v1::GenerateTextRequest& request, GenerateStream& stream);
  absl::Status Evaluate(const v1::EvaluateTextRequest& request, EvaluateStream& stream);

  const std::string token_folder_;
  absl::Mutex evaluation_mutex_;
  absl::Mutex mutex_;
  bool loaded_ ABSL_GUARDED_BY(mutex_) = false;
  absl::StatusOr<std::unique_ptr<InferenceModel>> model_ ABSL_GUARDED_BY(mutex_);
  double load_seconds_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace millrace

#endif  // MILLRACE_SERVER_WORKER_INFER_SERVICE_H_
