// Takes the flags of `millrace-worker infer`, and serves as the name of its model says:
//   crash   ends with an error in its log when it is called
//   dead    ends before it listens
//   slow    says one piece, then nothing until the call is cancelled
//   broken  says that the model is damaged
// and else says the number of its process.
#include <grpcpp/server_builder.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <map>
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "millrace/v1/worker.grpc.pb.h"
#include "server/worker/socket_address.h"

namespace millrace {
namespace {

class FakeService : public v1::InferenceService::Service {
 public:
  explicit FakeService(std::string model) : model_(std::move(model)) {}

  grpc::Status GenerateText(grpc::ServerContext* context, const v1::GenerateTextRequest* request,
                            grpc::ServerWriter<v1::GenerateTextResponse>* writer) override {
    if (absl::EndsWith(model_, "broken")) {
      return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "model.safetensors: is damaged");
    }
    if (request->max_tokens() > 100) {
      return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "max_tokens: 101 is too many");
    }
    v1::GenerateTextResponse response;
    response.mutable_piece()->set_text(absl::StrCat(getpid()));
    writer->Write(response);
    if (absl::EndsWith(model_, "crash")) {
      fprintf(stderr, "[t] [error] a page was not there\n");
      fflush(stderr);
      abort();
    }
    while (absl::EndsWith(model_, "slow") && !context->IsCancelled()) std::this_thread::yield();
    return grpc::Status::OK;
  }

 private:
  const std::string model_;
};

int Main(int argc, char** argv) {
  std::map<std::string, std::string> flags;
  for (int i = 2; i + 1 < argc; i += 2) flags[argv[i]] = argv[i + 1];
  if (absl::EndsWith(flags["--model"], "dead")) {
    fprintf(stderr, "[t] [error] no such processor\n");
    return 1;
  }
  FakeService service(flags["--model"]);
  grpc::ServerBuilder builder;
  const auto address = SocketAddress::Make(flags["--socket"]);
  if (!address.ok()) return 2;
  builder.AddListeningPort(address->address(), grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  const auto server = builder.BuildAndStart();
  if (server == nullptr) return 2;
  pollfd lifeline = {.fd = atoi(flags["--lifeline_fd"].c_str()), .events = POLLIN};
  poll(&lifeline, 1, -1);
  _exit(0);
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::Main(argc, argv); }
