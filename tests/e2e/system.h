// The whole system in a folder of its own: a real millraced with real workers, used through the
// real `millrace` command.
#ifndef MILLRACE_TESTS_E2E_SYSTEM_H_
#define MILLRACE_TESTS_E2E_SYSTEM_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "client/lib/connection.h"
#include "millrace/v1/job_service.pb.h"
#include "tests/e2e/process.h"

namespace millrace {

// What a job is trained on, and how; the defaults are a model of some thousand parameters that
// trains in about a second.
struct JobOptions {
  int steps = 60;
  int hidden_size = 32;
  int layers = 2;
  int sequence_length = 64;
  int tokens_per_step = 256;
  int checkpoint_every = 20;
  std::string optimizer = "adamw";
  double learning_rate = 3e-3;
  std::string dataset = "datasets/licences";
  // Lines to add at the end of the job file.
  std::string extra;
};

// A job file. Threads and micro-batch are given, so that every run of it makes the same numbers.
std::string JobFileText(const JobOptions& options = {});

class System {
 public:
  System();
  // Ends everything that was started.
  ~System();

  const std::string& folder() const { return folder_; }
  std::string data_dir() const { return folder_ + "/data"; }
  const std::string& address() const { return address_; }
  const std::string& http_address() const { return http_address_; }

  // More flags of the daemons to be started.
  void AddDaemonFlags(const std::vector<std::string>& flags) {
    daemon_flags_.insert(daemon_flags_.end(), flags.begin(), flags.end());
  }

  // Starts the daemon and waits until it serves. A second start takes the same ports.
  void StartDaemon(const ProcessOptions& options = {});
  // SIGTERM; returns the exit code.
  int StopDaemon();
  void KillDaemon();
  Process& daemon() { return *daemon_; }

  // The `millrace` command with this daemon as its server.
  RunResult Run(std::vector<std::string> arguments);
  std::unique_ptr<Process> Start(std::vector<std::string> arguments);

  // Uploads the licence texts of the system as `datasets/licences`.
  void UploadText();
  // Writes a job file and returns its path.
  std::string WriteJobFile(const std::string& text);
  // Submits a job; fails the test when that does not work.
  void Submit(const std::string& id, const JobOptions& options = {});

  // The job as the daemon has it.
  v1::Job GetJob(const std::string& id);
  // Follows the job's events from the beginning until `condition` holds for one; fails the test
  // when the job ends first.
  void WaitForEvent(const std::string& id,
                    const std::function<bool(const v1::JobEvent&)>& condition);
  void WaitForStep(const std::string& id, int64_t step);
  void WaitForState(const std::string& id, v1::Job::State state);
  // To its end.
  v1::Job WaitForEnd(const std::string& id);
  std::vector<v1::JobEvent> AllEvents(const std::string& id);

  // The worker's process id, once it runs.
  std::vector<pid_t> Workers() const;
  void KillWorker();

  // The final weights and optimizer state: SHA-256 of every .safetensors and .bin file of the
  // latest checkpoint, by path.
  std::map<std::string, std::string> StateHashes(const std::string& id);

  std::string Metrics();

 private:
  std::vector<std::string> Command(std::vector<std::string> arguments) const;

  std::string folder_;
  std::vector<std::string> daemon_flags_;
  std::string address_ = "127.0.0.1:0";
  std::string http_address_ = "127.0.0.1:0";
  std::unique_ptr<Process> daemon_;
  std::unique_ptr<Connection> connection_;
};

}  // namespace millrace

#endif  // MILLRACE_TESTS_E2E_SYSTEM_H_
