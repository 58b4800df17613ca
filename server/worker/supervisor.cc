#include "server/worker/supervisor.h"

#include <poll.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/base/file.h"
#include "engine/base/status_macros.h"
#include "proto/job_file/job_file.h"
#include "server/worker/exit_report.h"
#include "server/worker/job_lock.h"
#include "server/worker/unsent_reports.h"

namespace millrace {
namespace {

// Between looks at a lock of which the owner is not known, and after an error of poll(2).
constexpr absl::Duration kRetryInterval = absl::Milliseconds(100);
// The stream of a process that has ended ends at once.
constexpr absl::Duration kDetachTimeout = absl::Seconds(10);

}  // namespace

// One attempt that runs, or of which the end is not yet reported.
struct Supervisor::Worker {
  std::string job_id;
  int32_t attempt = 0;
  std::string job_dir;
  std::string attempt_folder;
  std::string log_path;
  // The attempt ended while no daemon ran, and left unsent reports.
  bool was_gone = false;
  // None as long as a process has the lock and it is not known which. The thread's, once that runs.
  std::optional<WorkerProcess> process;
  int64_t memory_kills_at_start = 0;
  // Wakes the thread.
  UniqueFd wake_fd;
  std::thread thread;

  // Guarded by the supervisor's mutex.
  std::optional<v1::WorkerCommand> command;
  SendCommand send;
  int64_t connection = 0;
  // When which signal is due, and what to say of it.
  absl::Time deadline = absl::InfiniteFuture();
  bool terminated = false;
  absl::Duration grace;
  std::string killed_because;

  void Wake() const {
    const uint64_t one = 1;
    if (write(wake_fd.get(), &one, sizeof(one)) < 0) {
      // The counter is full: the thread is woken already.
    }
  }
};

Supervisor::Supervisor(Options options) : options_(std::move(options)) {}

Supervisor::~Supervisor() { Shutdown(); }

void Supervisor::Shutdown() {
  std::vector<std::shared_ptr<Worker>> workers;
  {
    absl::MutexLock lock(&mutex_);
    ending_ = true;
    for (const auto& [id, worker] : workers_) workers.push_back(worker);
    workers.insert(workers.end(), ended_.begin(), ended_.end());
    for (const auto& worker : workers) worker->Wake();
  }
  for (const auto& worker : workers) {
    if (worker->thread.joinable()) worker->thread.join();
  }
}

absl::Status Supervisor::Start(const std::string& job_id, int32_t attempt,
                               const v1::JobSpec& spec) {
  JoinEnded();
  // All that may be refused comes before the process.
  MILLRACE_ASSIGN_OR_RETURN(const std::shared_ptr<Worker> worker, MakeWorker(job_id, attempt));
  std::error_code error;
  std::filesystem::create_directories(worker->attempt_folder, error);
  if (error) return ErrnoToStatus(error.value(), "create", worker->attempt_folder);
  const std::string job_file = absl::StrCat(worker->attempt_folder, "/job.yaml");
  MILLRACE_RETURN_IF_ERROR(WriteFileAtomically(job_file, FormatJobFile(spec)));

  MILLRACE_ASSIGN_OR_RETURN(JobLock job_lock, JobLock::Take(worker->job_dir));
  options_.make_room();
  MILLRACE_ASSIGN_OR_RETURN(
      WorkerProcess process,
      WorkerProcess::Start({options_.worker_program, "--job_dir", worker->job_dir, "--data_dir",
                            options_.paths.root(), "--socket", options_.socket, "--attempt",
                            absl::StrCat(attempt), "--lock_fd", absl::StrCat(kLockFd)},
                           worker->log_path, job_lock.fd()));
  // The worker writes it too; whoever is first.
  job_lock.WriteOwner(process.pid()).IgnoreError();
  worker->process = std::move(process);
  const absl::Status watched = Watch(worker);
  if (!watched.ok()) {
    worker->process->Signal(SIGKILL);
    worker->process->Reap();
  }
  return watched;
}

absl::StatusOr<bool> Supervisor::Adopt(const std::string& job_id, int32_t attempt) {
  auto owner = FindJobLockOwner(options_.paths.Job(job_id), absl::ZeroDuration());
  const bool was_gone = owner.ok() && !owner->has_value();
  if (was_gone) {
    // It ended while no daemon ran. If it left word, that is passed on as if it ended just now.
    auto unsent = ReadUnsentReports(options_.paths.Attempt(job_id, attempt));
    if (!unsent.ok() || unsent->empty()) return false;
  }
  MILLRACE_ASSIGN_OR_RETURN(const std::shared_ptr<Worker> worker, MakeWorker(job_id, attempt));
  worker->was_gone = was_gone;
  if (owner.ok() && owner->has_value()) {
    worker->process = WorkerProcess::Adopt((*owner)->pid, std::move((*owner)->pidfd));
  }
  MILLRACE_RETURN_IF_ERROR(Watch(worker));
  return true;
}

absl::StatusOr<std::shared_ptr<Supervisor::Worker>> Supervisor::MakeWorker(
    const std::string& job_id, int32_t attempt) {
  auto worker = std::make_shared<Worker>();
  worker->job_id = job_id;
  worker->attempt = attempt;
  worker->job_dir = options_.paths.Job(job_id);
  worker->attempt_folder = options_.paths.Attempt(job_id, attempt);
  worker->log_path = options_.paths.AttemptLog(job_id, attempt);
  worker->memory_kills_at_start = OutOfMemoryKills();
  worker->wake_fd = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!worker->wake_fd.valid()) return ErrnoToStatus(errno, "make", "an eventfd");
  return worker;
}

absl::Status Supervisor::Watch(const std::shared_ptr<Worker>& worker) {
  absl::MutexLock lock(&mutex_);
  if (ending_) return absl::UnavailableError("this daemon is ending");
  try {
    worker->thread = std::thread([this, worker] {
      WatchLoop(*worker);
      bool report = false;
      {
        absl::MutexLock lock(&mutex_);
        report = !ending_;
      }
      if (report) ReportExit(*worker);
    });
  } catch (const std::system_error& error) {
    return absl::UnavailableError(absl::StrCat("cannot start a thread: ", error.what()));
  }
  workers_[worker->job_id] = worker;
  return absl::OkStatus();
}

void Supervisor::FindProcess(Worker& worker) {
  while (!worker.process.has_value()) {
    auto owner = FindJobLockOwner(worker.job_dir, absl::ZeroDuration());
    if (owner.ok()) {
      if (owner->has_value()) {
        worker.process = WorkerProcess::Adopt((*owner)->pid, std::move((*owner)->pidfd));
      }
      return;
    }
    absl::MutexLock lock(&mutex_);
    if (mutex_.AwaitWithTimeout(absl::Condition(&ending_), kRetryInterval)) return;
  }
}

void Supervisor::WatchLoop(Worker& worker) {
  if (!worker.was_gone) FindProcess(worker);
  if (!worker.process.has_value()) return;
  pollfd files[2] = {{worker.process->pidfd(), POLLIN, 0}, {worker.wake_fd.get(), POLLIN, 0}};
  while (true) {
    absl::Duration wait;
    {
      absl::MutexLock lock(&mutex_);
      if (ending_) return;
      Escalate(worker);
      wait = std::max(worker.deadline - absl::Now(), absl::ZeroDuration());
    }
    const int64_t wait_ms = absl::ToInt64Milliseconds(std::min(wait, absl::Hours(1))) + 1;
    if (poll(files, 2, static_cast<int>(wait_ms)) < 0) {
      if (errno == EINTR) continue;
      spdlog::error("cannot watch the worker of jobs/{}: {}; trying again", worker.job_id,
                    strerror(errno));
      absl::MutexLock lock(&mutex_);
      mutex_.AwaitWithTimeout(absl::Condition(&ending_), kRetryInterval);
      continue;
    }
    if (files[0].revents != 0) return;
    uint64_t count;
    if (read(worker.wake_fd.get(), &count, sizeof(count)) < 0) continue;
  }
}

void Supervisor::Escalate(Worker& worker) {
  if (absl::Now() < worker.deadline) return;
  if (!worker.terminated && worker.command->has_stop()) {
    worker.terminated = true;
    worker.deadline = absl::Now() + options_.terminate_grace;
    worker.process->Signal(SIGTERM);
    return;
  }
  worker.deadline = absl::InfiniteFuture();
  worker.killed_because =
      absl::StrCat("killed because it had not ended ", absl::FormatDuration(worker.grace),
                   " after it was asked to");
  worker.process->Signal(SIGKILL);
}

void Supervisor::Command(Worker& worker, const v1::WorkerCommand& command) {
  worker.command = command;
  if (worker.send) worker.send(command);
  worker.Wake();
}

Supervisor::Worker* Supervisor::Find(const std::string& job_id, int32_t attempt) {
  const auto found = workers_.find(job_id);
  if (found == workers_.end() || found->second->attempt != attempt || found->second->was_gone) {
    return nullptr;
  }
  return found->second.get();
}

void Supervisor::RequestStop(const std::string& job_id, int32_t attempt,
                             const std::string& trigger) {
  absl::MutexLock lock(&mutex_);
  Worker* const worker = Find(job_id, attempt);
  // A cancellation stands, and the first stop counts.
  if (worker == nullptr || worker->command.has_value()) return;
  worker->grace = options_.stop_grace;
  worker->deadline = absl::Now() + worker->grace;
  v1::WorkerCommand command;
  command.mutable_stop()->set_trigger(trigger);
  Command(*worker, command);
}

void Supervisor::RequestCancel(const std::string& job_id, int32_t attempt, absl::Duration grace) {
  absl::MutexLock lock(&mutex_);
  Worker* const worker = Find(job_id, attempt);
  if (worker == nullptr) return;
  if (worker->command.has_value() && worker->command->has_cancel()) return;
  worker->grace = grace;
  worker->deadline = absl::Now() + grace;
  v1::WorkerCommand command;
  command.mutable_cancel();
  Command(*worker, command);
}

void Supervisor::AcceptWorkers() {
  absl::MutexLock lock(&mutex_);
  accepting_ = true;
}

absl::StatusOr<int64_t> Supervisor::Attach(const std::string& job_id, int32_t attempt,
                                           SendCommand send) {
  absl::MutexLock lock(&mutex_);
  const int64_t connection = ++last_connection_;
  const auto found = workers_.find(job_id);
  if (found != workers_.end() && found->second->attempt == attempt) {
    Worker& worker = *found->second;
    worker.connection = connection;
    worker.send = std::move(send);
    if (worker.command.has_value()) worker.send(*worker.command);
    return connection;
  }
  if (!accepting_) return absl::UnavailableError("this daemon is starting; connect again");
  v1::WorkerCommand command;
  command.mutable_cancel();
  send(command);
  return connection;
}

void Supervisor::Detach(const std::string& job_id, int64_t connection) {
  absl::MutexLock lock(&mutex_);
  const auto found = workers_.find(job_id);
  if (found == workers_.end() || found->second->connection != connection) return;
  found->second->connection = 0;
  found->second->send = nullptr;
}

void Supervisor::ReportExit(Worker& worker) {
  std::optional<WorkerProcess::ExitStatus> status;
  if (worker.process.has_value()) status = worker.process->Reap();
  WorkerExit exit;
  {
    absl::MutexLock lock(&mutex_);
    exit = DescribeExit(status, worker.log_path, OutOfMemoryKills() - worker.memory_kills_at_start,
                        worker.killed_because);
    // What is still under way on its stream comes before its end.
    const auto detached = [&worker, this] { return worker.connection == 0 || ending_; };
    mutex_.AwaitWithTimeout(absl::Condition(&detached), kDetachTimeout);
    if (ending_) return;
  }
  auto unsent = ReadUnsentReports(worker.attempt_folder);
  if (unsent.ok() && !unsent->empty()) {
    exit.unsent = *std::move(unsent);
    exit.on_stored = [folder = worker.attempt_folder] {
      RemoveUnsentReports(folder).IgnoreError();
    };
  }
  exit.counts_as_crash = !worker.was_gone;
  {
    absl::MutexLock lock(&mutex_);
    const auto found = workers_.find(worker.job_id);
    ended_.push_back(found->second);
    workers_.erase(found);
  }
  sink_->WorkerExited(worker.job_id, worker.attempt, exit);
}

void Supervisor::JoinEnded() {
  std::vector<std::shared_ptr<Worker>> ended;
  {
    absl::MutexLock lock(&mutex_);
    ended.swap(ended_);
  }
  for (const auto& worker : ended) {
    // WorkerExited may start the next attempt from that very thread.
    if (worker->thread.get_id() == std::this_thread::get_id()) {
      absl::MutexLock lock(&mutex_);
      ended_.push_back(worker);
    } else if (worker->thread.joinable()) {
      worker->thread.join();
    }
  }
}

}  // namespace millrace
