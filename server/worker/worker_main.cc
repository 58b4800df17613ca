// millrace-worker: runs one training job, under a daemon or on its own; or serves one model.
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "server/worker/daemon_run.h"
#include "server/worker/exit_codes.h"
#include "server/worker/infer_run.h"
#include "server/worker/job_lock.h"
#include "server/worker/local_run.h"
#include "server/worker/worker_log.h"
#include "server/worker/worker_tasks.h"

namespace millrace {
namespace {

constexpr char kDescription[] =
    "Runs one training job.\n\n"
    "  millrace-worker --spec job.yaml --dir DIR\n\n"
    "runs a job file without a daemon: checkpoints go to DIR, one JSON object a step (step, loss,\n"
    "gradient_norm, learning_rate, tokens, step_seconds, tokens_per_second, speed_of_light_ratio,\n"
    "total_tokens, stalls) to standard output, the log to standard error. It goes on from DIR's\n"
    "last complete checkpoint if there is one. SIGTERM or Ctrl-C writes a checkpoint and ends; a\n"
    "second one ends at once. The other flags, and the commands export and train-tokenizer, are "
    "for\n"
    "millraced, which starts workers of its own.";

// The daemon should live longer than a worker that takes too much.
constexpr int kOutOfMemoryScore = 500;
constexpr int kNiceness = 5;

struct Flags {
  LocalRunOptions local;
  DaemonRunOptions daemon;
  int lock_fd = -1;
  InferOptions infer;
  bool serve_model = false;
};

// Takes SIGTERM and SIGINT, which all other threads must have blocked: the first asks the run to
// stop, a second of them to cancel.
void HandleSignals(const sigset_t& signals, StopControl& stop, spdlog::logger& log) {
  // Signals alone: a daemon may have asked for a checkpoint just before the first one.
  for (bool is_first = true;; is_first = false) {
    int signal = 0;
    while (sigwait(&signals, &signal) != 0) {
    }
    if (is_first) {
      log.info("got signal {}; writing a checkpoint", signal);
      stop.RequestStop("SHUTDOWN");
    } else {
      log.info("got signal {} once more; ending at once", signal);
      stop.RequestCancel();
    }
  }
}

void YieldToDaemon() {
  setpriority(PRIO_PROCESS, 0, kNiceness);
  std::ofstream("/proc/self/oom_score_adj") << kOutOfMemoryScore;
}

// Signals end it as they do any process: it has nothing to save.
WorkerExitCode ServeModel(const Flags& flags) {
  if (flags.infer.lifeline_fd >= 0) YieldToDaemon();
  return RunInference(flags.infer, *MakeWorkerLog(STDERR_FILENO));
}

WorkerExitCode Run(const Flags& flags, StopControl& stop, spdlog::logger& log) {
  if (flags.daemon.job_dir.empty()) return RunLocally(flags.local, stop, log);
  YieldToDaemon();
  std::unique_ptr<JobLock> lock;
  if (flags.lock_fd >= 0) {
    lock = std::make_unique<JobLock>(JobLock::Adopt(flags.lock_fd));
  } else {
    absl::StatusOr<JobLock> taken = JobLock::Take(flags.daemon.job_dir);
    if (!taken.ok()) {
      log.error("{}", std::string(taken.status().message()));
      return WorkerExitCode::kError;
    }
    lock = std::make_unique<JobLock>(*std::move(taken));
  }
  if (const absl::Status status = lock->WriteOwner(getpid()); !status.ok()) {
    log.error("{}", std::string(status.message()));
    return WorkerExitCode::kError;
  }
  return RunUnderDaemon(flags.daemon, stop, log);
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app(kDescription, "millrace-worker");
  app.footer("\n" + WorkerExitCodeHelp());
  auto* spec = app.add_option("--spec", flags.local.spec_path, "the job file (YAML)");
  auto* dir = app.add_option("--dir", flags.local.folder, "where checkpoints go");
  auto* job_dir = app.add_option("--job_dir", flags.daemon.job_dir, "a daemon's folder of the job");
  auto* data_dir = app.add_option("--data_dir", flags.daemon.data_dir, "the daemon's data folder");
  auto* socket = app.add_option("--socket", flags.daemon.socket, "the daemon's Unix socket");
  auto* attempt = app.add_option("--attempt", flags.daemon.attempt, "number of this attempt");
  app.add_option("--lock_fd", flags.lock_fd, "open file that holds the lock of --job_dir");
  auto* infer = app.add_subcommand("infer", "serves a model to millraced on a Unix socket");
  infer->add_option("--socket", flags.infer.socket, "where to listen")->required();
  infer->add_option("--model", flags.infer.model, "model directory, checkpoint or GGUF file")
      ->required();
  infer->add_option("--compute", flags.infer.compute, "bf16 or f32 [bf16 where there is]");
  infer->add_option("--threads", flags.infer.threads, "compute threads [the machine's cores]");
  infer->add_option("--token_dir", flags.infer.token_folder, "where tokens of datasets are kept")
      ->required();
  infer->add_option("--lifeline_fd", flags.infer.lifeline_fd,
                    "open file whose end is that of the process");
  spec->needs(dir)->excludes(job_dir);
  dir->needs(spec);
  job_dir->needs(data_dir)->needs(socket)->needs(attempt);
  try {
    app.parse(argc, argv);
    flags.serve_model = infer->parsed();
    if (!flags.serve_model && spec->empty() && job_dir->empty()) {
      throw CLI::RequiredError("--spec and --dir");
    }
  } catch (const CLI::ParseError& error) {
    const bool is_help = app.exit(error) == 0;
    return static_cast<int>(is_help ? WorkerExitCode::kDone : WorkerExitCode::kUsage);
  }

  signal(SIGPIPE, SIG_IGN);
  if (flags.serve_model) return static_cast<int>(ServeModel(flags));
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  const std::shared_ptr<spdlog::logger> log = MakeWorkerLog(STDERR_FILENO);
  StopControl stop;
  std::thread([&] { HandleSignals(signals, stop, *log); }).detach();
  const WorkerExitCode code = Run(flags, stop, *log);
  // The signal thread uses what is on this stack until the process is gone.
  fflush(nullptr);
  _exit(static_cast<int>(code));
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  if (argc > 1 && millrace::IsWorkerTask(argv[1])) return millrace::RunWorkerTask(argc, argv);
  return millrace::Main(argc, argv);
}
