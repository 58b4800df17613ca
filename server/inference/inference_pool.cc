#include "server/inference/inference_pool.h"

#include <fcntl.h>
#include <grpcpp/create_channel.h>
#include <poll.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/base/file.h"
#include "engine/base/status_macros.h"
#include "server/base/errors.h"
#include "server/worker/exit_report.h"
#include "server/worker/socket_address.h"
#include "server/worker/worker_process.h"

namespace millrace {
namespace {

// Program, libraries and compiled products of a process; its texts' caches come on top.
constexpr int64_t kRuntimeBytes = int64_t{200} << 20;
// How long a process whose call broke is given to be seen to have ended.
constexpr absl::Duration kEndGrace = absl::Seconds(5);
constexpr absl::Duration kRetryDelay = absl::Seconds(5);

// Fields of requests that a process may find fault with.
constexpr absl::string_view kFields[] = {"max_tokens", "sequence_length", "compute"};

// Tells one content of a path from what was there before.
std::string StampOf(const std::string& path) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0) return "";
  return absl::StrCat(status.st_dev, ":", status.st_ino, ":", status.st_size, ":",
                      absl::ToUnixNanos(absl::TimeFromTimespec(status.st_mtim)));
}

std::string MiB(int64_t bytes) { return absl::StrCat((bytes + (1 << 20) - 1) >> 20, " MiB"); }

std::optional<FieldViolation> FieldOf(const std::string& message) {
  for (absl::string_view field : kFields) {
    const std::string begin = absl::StrCat(field, ": ");
    if (message.rfind(begin, 0) != 0) continue;
    return FieldViolation{std::string(field), message.substr(begin.size())};
  }
  return std::nullopt;
}

}  // namespace

struct InferencePool::Worker {
  std::string path, compute, stamp;
  // Its files are called this and what they are.
  std::string stem;
  std::string socket_path() const { return stem + ".sock"; }
  std::string token_folder() const { return stem + ".tokens"; }
  std::string log_path() const { return stem + ".log"; }
  // The process ends with it.
  UniqueFd lifeline;
  std::optional<WorkerProcess> process;
  int64_t memory_kills = 0;  // of the system, when it was started
  std::unique_ptr<SocketAddress> address;
  std::unique_ptr<v1::InferenceService::Stub> stub;
  // Guarded by the pool's mutex.
  std::set<grpc::ClientContext*> contexts;
  int calls = 0;
  absl::Time last_used;  // by a call that has ended
  bool retired = false;  // serves no new calls
  bool killed = false;   // by the pool
  bool ended = false;
  WorkerExit exit;

  // What a process leaves; the log only when there is nothing to learn from it.
  void RemoveFiles() const {
    std::error_code ignored;
    std::filesystem::remove(socket_path(), ignored);
    std::filesystem::remove_all(token_folder(), ignored);
    if (killed) std::filesystem::remove(log_path(), ignored);
  }
};

absl::StatusOr<std::unique_ptr<InferencePool>> InferencePool::Start(Options options) {
  std::error_code error;
  std::filesystem::remove_all(options.folder, error);
  MILLRACE_RETURN_IF_ERROR(MakeFolderDurably(options.folder));
  std::unique_ptr<InferencePool> pool(new InferencePool(std::move(options)));
  pool->wake_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!pool->wake_.valid()) return ErrnoToStatus(errno, "make", "an eventfd");
  pool->thread_ = std::thread([pool = pool.get()] { pool->WatchLoop(); });
  return pool;
}

InferencePool::~InferencePool() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    for (const WorkerPtr& worker : workers_) Kill(*worker);
  }
  Wake();
  if (thread_.joinable()) thread_.join();
}

int InferencePool::loaded_models() {
  absl::MutexLock lock(&mutex_);
  return static_cast<int>(workers_.size());
}

absl::Status InferencePool::Call(const ResolvedModel& model, const std::string& compute,
                                 grpc::ClientContext* context, Work work) {
  MILLRACE_ASSIGN_OR_RETURN(const WorkerPtr worker, Acquire(model, compute));
  {
    absl::MutexLock lock(&mutex_);
    worker->contexts.insert(context);
    if (worker->ended) context->TryCancel();
  }
  // Until the process listens.
  context->set_wait_for_ready(true);
  const grpc::Status status = work(*worker->stub);
  {
    absl::MutexLock lock(&mutex_);
    worker->contexts.erase(context);
  }
  const absl::Status explained = Explain(model, worker, status);
  // A model that could not be loaded is tried anew by the next call.
  const bool keep = explained.ok() || absl::IsCancelled(explained) ||
                    (absl::IsInvalidArgument(explained) && !FieldViolationsOf(explained).empty()) ||
                    absl::IsFailedPrecondition(explained);
  Release(worker, keep);
  return explained;
}

absl::StatusOr<InferencePool::WorkerPtr> InferencePool::Acquire(const ResolvedModel& model,
                                                                const std::string& compute) {
  const std::string stamp = StampOf(model.path);
  absl::MutexLock lock(&mutex_);
  WorkerPtr worker;
  while (worker == nullptr) {
    if (stopping_) return MakeError(ErrorReason::kDraining, "the daemon is ending");
    if (calls_ >= options_.max_calls) {
      return WithRetryDelay(
          MakeError(ErrorReason::kBusy,
                    absl::StrCat(calls_,
                                 " generations and evaluations run, as many as may; try "
                                 "again when one has ended")),
          kRetryDelay);
    }
    worker = Find(model.path, compute, stamp);
    if (worker != nullptr) break;
    MILLRACE_ASSIGN_OR_RETURN(const bool room, HasRoom(model, compute));
    // Others had their turn while an idle one ended.
    if (!room) continue;
    MILLRACE_ASSIGN_OR_RETURN(worker, StartWorker(model, compute));
    worker->stamp = stamp;
  }
  ++calls_;
  ++worker->calls;
  return worker;
}

InferencePool::WorkerPtr InferencePool::Find(const std::string& path, const std::string& compute,
                                             const std::string& stamp) {
  for (const WorkerPtr& worker : workers_) {
    if (worker->path != path || worker->compute != compute || worker->retired) continue;
    // Where nothing lies any more, what is loaded still serves.
    if (stamp.empty() || worker->stamp == stamp) return worker;
    worker->retired = true;
  }
  return nullptr;
}

void InferencePool::Release(const WorkerPtr& worker, bool keep) {
  absl::MutexLock lock(&mutex_);
  --calls_;
  --worker->calls;
  worker->last_used = absl::Now();
  if (!keep) worker->retired = true;
  // The watcher ends what is retired or idle.
  Wake();
}

absl::StatusOr<bool> InferencePool::HasRoom(const ResolvedModel& model,
                                            const std::string& compute) {
  if (static_cast<int>(workers_.size()) >= options_.max_loaded_models) {
    if (EndOneIdle()) return false;
    return WithRetryDelay(
        MakeError(ErrorReason::kBusy,
                  absl::StrCat(workers_.size(),
                               " other models are in use, as many as may be loaded "
                               "(max_loaded_models); try again later")),
        kRetryDelay);
  }
  const absl::StatusOr<int64_t> weights = options_.weight_bytes(model.path, compute);
  if (!weights.ok()) {
    return MakeError(ErrorReason::kModelInvalid,
                     absl::StrCat(model.name, ": ", weights.status().message()));
  }
  const int64_t needed = *weights + kRuntimeBytes, free = options_.free_bytes();
  if (needed <= free) return true;
  if (EndOneIdle()) return false;
  const std::string problem =
      absl::StrCat(model.name, " needs ", MiB(needed), " of memory, and ", MiB(free), " are free");
  return WithPreconditionFailure(
      MakeError(ErrorReason::kHostMemoryInsufficient,
                absl::StrCat(problem, "; pause a job, or wait until one has ended")),
      "HOST_MEMORY", model.name, problem);
}

absl::StatusOr<InferencePool::WorkerPtr> InferencePool::StartWorker(const ResolvedModel& model,
                                                                    const std::string& compute) {
  auto worker = std::make_shared<Worker>();
  worker->path = model.path;
  worker->compute = compute;
  worker->stem = absl::StrCat(options_.folder, "/", ++started_);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoToStatus(errno, "make", "a pipe");
  const UniqueFd other_end(ends[0]);
  worker->lifeline = UniqueFd(ends[1]);
  std::vector<std::string> command = {options_.worker_program,
                                      "infer",
                                      "--socket",
                                      worker->socket_path(),
                                      "--model",
                                      model.path,
                                      "--token_dir",
                                      worker->token_folder(),
                                      "--lifeline_fd",
                                      absl::StrCat(kLockFd)};
  if (!compute.empty()) command.insert(command.end(), {"--compute", compute});
  worker->memory_kills = OutOfMemoryKills();
  MILLRACE_ASSIGN_OR_RETURN(WorkerProcess process,
                            WorkerProcess::Start(command, worker->log_path(), other_end.get()));
  spdlog::info("process {} loads {}", process.pid(), model.name);
  worker->process.emplace(std::move(process));
  // In the list before anything may fail: from here on the watcher reaps it.
  workers_.push_back(worker);
  Wake();
  absl::StatusOr<SocketAddress> address = SocketAddress::Make(worker->socket_path());
  if (!address.ok()) {
    Kill(*worker);
    return address.status();
  }
  worker->address = std::make_unique<SocketAddress>(*std::move(address));
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // It listens within a moment of being started.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 20);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 20);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 200);
  worker->stub = v1::InferenceService::NewStub(grpc::CreateCustomChannel(
      worker->address->address(), grpc::InsecureChannelCredentials(), arguments));
  return worker;
}

void InferencePool::Kill(Worker& worker) {
  worker.retired = true;
  worker.killed = true;
  // It has nothing to save.
  worker.process->Signal(SIGKILL);
}

bool InferencePool::EndOneIdle() {
  WorkerPtr oldest;
  for (const WorkerPtr& worker : workers_) {
    if (worker->calls > 0) continue;
    if (oldest == nullptr || worker->last_used < oldest->last_used) oldest = worker;
  }
  if (oldest == nullptr) return false;
  Kill(*oldest);
  Wake();
  mutex_.Await(absl::Condition(&oldest->ended));
  return true;
}

void InferencePool::EndIdle() {
  absl::MutexLock lock(&mutex_);
  while (EndOneIdle()) {
  }
}

absl::Status InferencePool::Explain(const ResolvedModel& model, const WorkerPtr& worker,
                                    const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const std::string& message = status.error_message();
  switch (status.error_code()) {
    case grpc::StatusCode::INVALID_ARGUMENT:
      if (const auto field = FieldOf(message)) {
        return MakeFieldError(ErrorReason::kConfigInvalid, {*field});
      }
      [[fallthrough]];
    case grpc::StatusCode::NOT_FOUND:
    case grpc::StatusCode::DATA_LOSS:
      return MakeError(ErrorReason::kModelInvalid, absl::StrCat(model.name, ": ", message));
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return WithPreconditionFailure(MakeError(ErrorReason::kHostMemoryInsufficient, message),
                                     "HOST_MEMORY", model.name, message);
    default:
      break;
  }
  absl::MutexLock lock(&mutex_);
  // The wire broke, or the watcher cancelled the call: the process may be about to be reaped.
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
    mutex_.AwaitWithTimeout(absl::Condition(&worker->ended), kEndGrace);
  }
  if (worker->ended) {
    if (worker->exit.reason == v1::REASON_OUT_OF_MEMORY) {
      return MakeError(ErrorReason::kHostMemoryInsufficient,
                       absl::StrCat("memory ran out while ", model.name, " was in use"));
    }
    return MakeError(ErrorReason::kInternal,
                     absl::StrCat("the process that had loaded ", model.name, " ended: ",
                                  worker->exit.description, "; the next call starts a new one"));
  }
  if (status.error_code() == grpc::StatusCode::CANCELLED) return absl::CancelledError(message);
  return MakeError(ErrorReason::kInternal, absl::StrCat(model.name, ": ", message));
}

void InferencePool::Wake() {
  const uint64_t one = 1;
  // Full, it is awake already.
  [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof(one));
}

void InferencePool::WatchLoop() {
  while (true) {
    std::vector<WorkerPtr> watched;
    std::vector<pollfd> files = {{.fd = wake_.get(), .events = POLLIN}};
    absl::Duration wait = absl::InfiniteDuration();
    {
      absl::MutexLock lock(&mutex_);
      if (stopping_ && workers_.empty()) return;
      const absl::Time now = absl::Now();
      for (const WorkerPtr& worker : workers_) {
        if (worker->calls == 0 && !worker->killed) {
          const absl::Time end = worker->retired ? now : worker->last_used + options_.idle_time;
          if (end <= now) {
            Kill(*worker);
          } else {
            wait = std::min(wait, end - now);
          }
        }
        watched.push_back(worker);
        files.push_back({.fd = worker->process->pidfd(), .events = POLLIN});
      }
    }
    const int timeout =
        wait == absl::InfiniteDuration()
            ? -1
            : static_cast<int>(absl::ToInt64Milliseconds(std::min(wait, absl::Hours(1)))) + 1;
    if (poll(files.data(), files.size(), timeout) < 0 && errno != EINTR) {
      spdlog::error("cannot watch processes: {}",
                    std::error_code(errno, std::system_category()).message());
      return;
    }
    uint64_t ignored;
    [[maybe_unused]] const ssize_t count = read(wake_.get(), &ignored, sizeof(ignored));
    for (size_t i = 0; i < watched.size(); ++i) {
      if ((files[i + 1].revents & POLLIN) == 0) continue;
      Worker& worker = *watched[i];
      const auto status = worker.process->Reap();
      const int64_t kills = OutOfMemoryKills() - worker.memory_kills;
      const auto remove = absl::MakeCleanup([&worker] { worker.RemoveFiles(); });
      absl::MutexLock lock(&mutex_);
      worker.exit = DescribeExit(status, worker.log_path(), kills,
                                 worker.killed ? "it was ended by the daemon" : "");
      if (!worker.killed) {
        spdlog::warn("process {} with {} ended: {}; its log is {}", worker.process->pid(),
                     worker.path, worker.exit.description, worker.log_path());
      }
      worker.ended = true;
      workers_.erase(std::find(workers_.begin(), workers_.end(), watched[i]));
      for (grpc::ClientContext* context : worker.contexts) context->TryCancel();
    }
  }
}

}  // namespace millrace
