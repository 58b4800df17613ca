#include "server/worker/infer_run.h"

#include <grpcpp/server_builder.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/ops/cpu/cpu_ops.h"
#include "engine/train/inference_model.h"
#include "server/worker/infer_service.h"
#include "server/worker/socket_address.h"

namespace millrace {
namespace {

absl::StatusOr<DType> ComputeOf(const std::string& name) {
  if (name.empty()) return CpuHasBf16() ? DType::kBF16 : DType::kF32;
  for (DType type : {DType::kBF16, DType::kF32}) {
    if (name == NameOf(type)) return type;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("compute: \"", name, "\" is not known; give bf16 or f32"));
}

absl::StatusOr<std::unique_ptr<InferenceModel>> Load(const InferOptions& options) {
  MILLRACE_ASSIGN_OR_RETURN(const DType compute, ComputeOf(options.compute));
  const int threads = options.threads > 0
                          ? options.threads
                          : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return InferenceModel::Load(options.model, compute, threads, [] { return absl::OkStatus(); });
}

void WaitForEnd(int lifeline_fd) {
  pollfd watched = {.fd = lifeline_fd, .events = POLLIN};
  while (poll(&watched, 1, -1) < 0 && errno == EINTR) {
  }
}

}  // namespace

WorkerExitCode RunInference(const InferOptions& options, spdlog::logger& log) {
  absl::StatusOr<SocketAddress> address = SocketAddress::Make(options.socket);
  if (!address.ok()) {
    log.error("{}", std::string(address.status().message()));
    return WorkerExitCode::kError;
  }
  InferServiceImpl service(options.token_folder);
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address->address(), grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  // For the same user only, from the first moment.
  const mode_t mask = umask(0177);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  umask(mask);
  if (server == nullptr) {
    log.error("cannot listen on {}", options.socket);
    return WorkerExitCode::kError;
  }

  std::thread([&service, &log, options] {
    const auto start = std::chrono::steady_clock::now();
    absl::StatusOr<std::unique_ptr<InferenceModel>> model = Load(options);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (model.ok()) {
      log.info("loaded {} in {:.2f} s", options.model, seconds);
    } else {
      log.error("{} cannot be loaded: {}", options.model, std::string(model.status().message()));
    }
    service.SetModel(std::move(model), seconds);
  }).detach();
  if (options.lifeline_fd >= 0) {
    WaitForEnd(options.lifeline_fd);
    // Nobody reads what calls under way would still say, and the model need not be taken apart.
    _exit(static_cast<int>(WorkerExitCode::kDone));
  }
  server->Wait();
  return WorkerExitCode::kDone;
}

}  // namespace millrace
