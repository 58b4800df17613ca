#include "client/lib/generation.h"

#include <memory>

#include "client/lib/errors.h"

namespace millrace {
namespace {

template <typename Request, typename Response>
absl::Status ReadAll(Connection& connection, const Request& request,
                     std::unique_ptr<grpc::ClientReaderInterface<Response>> (
                         v1::GenerationService::StubInterface::*method)(grpc::ClientContext*,
                                                                        const Request&),
                     absl::FunctionRef<void(const Response&)> on_response) {
  grpc::ClientContext context;
  CancelOnStop cancel(connection.options().stop, &context);
  const std::unique_ptr<grpc::ClientReaderInterface<Response>> reader =
      (connection.generation().*method)(&context, request);
  Response response;
  while (reader->Read(&response)) on_response(response);
  return connection.Explain(StatusFromGrpc(reader->Finish()));
}

}  // namespace

absl::Status GenerateText(Connection& connection, const v1::GenerateTextRequest& request,
                          absl::FunctionRef<void(const v1::GenerateTextResponse&)> on_response) {
  return ReadAll(connection, request, &v1::GenerationService::StubInterface::GenerateText,
                 on_response);
}

absl::Status EvaluateText(Connection& connection, const v1::EvaluateTextRequest& request,
                          absl::FunctionRef<void(const v1::EvaluateTextResponse&)> on_response) {
  return ReadAll(connection, request, &v1::GenerationService::StubInterface::EvaluateText,
                 on_response);
}

}  // namespace millrace
