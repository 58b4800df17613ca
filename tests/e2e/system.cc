#include "tests/e2e/system.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/lib/watch.h"

namespace millrace {
namespace {

// The word after `label` in the line that the daemon prints once it serves.
std::string WordAfter(const std::string& text, const std::string& label) {
  size_t begin = text.find(label);
  if (begin == std::string::npos) return "";
  begin += label.size();
  return text.substr(begin, text.find_first_of(" ,\n", begin) - begin);
}

// Copies what is known of the processor's speed, which a daemon measures at its first start, so
// that not every test waits for it.
void CopyProfiles(const std::string& from, const std::string& to) {
  std::error_code error;
  std::filesystem::create_directories(to, error);
  for (std::filesystem::directory_iterator file(from, error), end; !error && file != end;
       file.increment(error)) {
    if (!absl::StartsWith(file->path().filename().string(), "cpu-profile-")) continue;
    std::error_code ignored;
    std::filesystem::copy(file->path(), std::filesystem::path(to) / file->path().filename(),
                          std::filesystem::copy_options::skip_existing, ignored);
  }
}

std::string KnownProfiles() { return absl::StrCat(::testing::TempDir(), "/profiles"); }

}  // namespace

std::string JobFileText(const JobOptions& o) {
  return absl::StrCat(
      "name: tiny\n", "model:\n  config: {model_type: llama, hidden_size: ", o.hidden_size,
      ", intermediate_size: ", 2 * o.hidden_size, ", num_hidden_layers: ", o.layers,
      ", num_attention_heads: 2, max_position_embeddings: ", o.sequence_length, "}\n",
      "data: {train: ", o.dataset, ", sequence_length: ", o.sequence_length, "}\n",
      "train:\n  steps: ", o.steps, "\n  tokens_per_step: ", o.tokens_per_step,
      "\n  tokens_per_micro_batch: ", o.tokens_per_step / 2,
      "\n  seed: 7\n  threads: 1\n  optimizer: {name: ", o.optimizer,
      ", learning_rate: ", o.learning_rate, "}\n", "checkpoint: {every_steps: ", o.checkpoint_every,
      "}\n", o.extra);
}

System::System() {
  // Workers outlive their daemon; when it is gone they become children of this process.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  folder_ = absl::StrCat(::testing::TempDir(), "/system-XXXXXX");
  if (mkdtemp(folder_.data()) == nullptr) abort();
  // As command lines and messages have it.
  folder_ = std::filesystem::canonical(folder_).string();
}

System::~System() {
  connection_.reset();
  if (::testing::Test::HasFailure() && daemon_ != nullptr) {
    std::string log = daemon_->Errors();
    constexpr size_t kShown = 8000;
    fprintf(stderr, "---- log of millraced ----\n%s\n",
            log.substr(log.size() - std::min(log.size(), kShown)).c_str());
  }
  daemon_.reset();
  CopyProfiles(data_dir(), KnownProfiles());
  for (pid_t pid : ProcessesWith(folder_)) kill(pid, SIGKILL);
  while (waitpid(-1, nullptr, WNOHANG) > 0) {
  }
}

void System::StartDaemon(const ProcessOptions& options) {
  CopyProfiles(KnownProfiles(), data_dir());
  std::vector<std::string> command = {
      ProgramPath("server/millraced"), absl::StrCat("--data_dir=", data_dir()),
      absl::StrCat("--listen=", address_), absl::StrCat("--http_listen=", http_address_),
      absl::StrCat("--worker_binary=", ProgramPath("server/worker/millrace-worker"))};
  command.insert(command.end(), daemon_flags_.begin(), daemon_flags_.end());
  daemon_ = std::make_unique<Process>(command, options);
  ASSERT_TRUE(daemon_->WaitForOutput("serves gRPC")) << daemon_->Output() << daemon_->Errors();
  address_ = WordAfter(daemon_->Output(), "gRPC on ");
  http_address_ = WordAfter(daemon_->Output(), "HTTP on ");
  if (connection_ == nullptr) {
    Connection::Options connection_options;
    connection_options.address = address_;
    connection_ = *Connection::Open(connection_options);
  }
}

int System::StopDaemon() {
  daemon_->Signal(SIGTERM);
  return daemon_->Wait();
}

void System::KillDaemon() {
  daemon_->Signal(SIGKILL);
  daemon_->Wait();
}

std::vector<std::string> System::Command(std::vector<std::string> arguments) const {
  arguments.insert(arguments.begin(), {ProgramPath("client/cli/millrace"), "--server", address_});
  return arguments;
}

RunResult System::Run(std::vector<std::string> arguments) {
  return RunProgram(Command(std::move(arguments)));
}

std::unique_ptr<Process> System::Start(std::vector<std::string> arguments) {
  return std::make_unique<Process>(Command(std::move(arguments)));
}

void System::UploadText() {
  RunResult result = Run({"datasets", "upload", "licences", "/usr/share/common-licenses"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
}

std::string System::WriteJobFile(const std::string& text) {
  std::string path = folder_ + "/job.yaml";
  WriteWholeFile(path, text);
  return path;
}

void System::Submit(const std::string& id, const JobOptions& options) {
  RunResult result = Run({"submit", WriteJobFile(JobFileText(options)), "--id", id});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
}

v1::Job System::GetJob(const std::string& id) {
  absl::StatusOr<v1::Job> job = connection_->GetJob("jobs/" + id);
  EXPECT_TRUE(job.ok()) << job.status();
  return job.ok() ? *job : v1::Job();
}

void System::WaitForEvent(const std::string& id,
                          const std::function<bool(const v1::JobEvent&)>& condition) {
  bool seen = false;
  absl::StatusOr<v1::Job> job =
      WatchJob(*connection_, "jobs/" + id, {}, [&](const v1::JobEvent& event) {
        seen = condition(event);
        return !seen;
      });
  ASSERT_TRUE(job.ok()) << job.status();
  ASSERT_TRUE(seen) << id << " ended first: " << job->ShortDebugString();
}

void System::WaitForStep(const std::string& id, int64_t step) {
  WaitForEvent(id, [&](const v1::JobEvent& event) { return event.step().step() >= step; });
}

void System::WaitForState(const std::string& id, v1::Job::State state) {
  // The newest state, not one that has passed.
  absl::StatusOr<v1::Job> job = connection_->GetJob("jobs/" + id);
  ASSERT_TRUE(job.ok()) << job.status();
  if (job->state() == state) return;
  WatchOptions options;
  options.after_sequence = job->last_sequence();
  job = WatchJob(*connection_, "jobs/" + id, options,
                 [&](const v1::JobEvent& event) { return event.state_change().to() != state; });
  ASSERT_TRUE(job.ok()) << job.status();
  ASSERT_EQ(job->state(), state) << job->ShortDebugString();
}

v1::Job System::WaitForEnd(const std::string& id) {
  absl::StatusOr<v1::Job> job =
      WatchJob(*connection_, "jobs/" + id, {}, [](const v1::JobEvent&) { return true; });
  EXPECT_TRUE(job.ok()) << job.status();
  return job.ok() ? *job : v1::Job();
}

std::vector<v1::JobEvent> System::AllEvents(const std::string& id) {
  std::vector<v1::JobEvent> events;
  absl::StatusOr<v1::Job> job =
      WatchJob(*connection_, "jobs/" + id, {}, [&](const v1::JobEvent& event) {
        events.push_back(event);
        return true;
      });
  EXPECT_TRUE(job.ok()) << job.status();
  return events;
}

std::vector<pid_t> System::Workers() const {
  std::vector<pid_t> workers;
  for (pid_t pid : ProcessesWith(data_dir())) {
    std::string command = ReadWholeFile(absl::StrCat("/proc/", pid, "/cmdline"));
    // The daemon's command line names the worker too, but not first.
    if (absl::EndsWith(command.substr(0, command.find('\0')), "/millrace-worker")) {
      workers.push_back(pid);
    }
  }
  return workers;
}

void System::KillWorker() {
  for (pid_t pid : Workers()) kill(pid, SIGKILL);
}

std::map<std::string, std::string> System::StateHashes(const std::string& id) {
  std::map<std::string, std::string> hashes;
  v1::GetCheckpointRequest latest;
  latest.set_name(absl::StrCat("jobs/", id, "/checkpoints/latest"));
  absl::StatusOr<v1::Checkpoint> checkpoint = connection_->Call(
      connection_->checkpoints(), &v1::CheckpointService::StubInterface::GetCheckpoint, latest);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
  if (!checkpoint.ok()) return hashes;
  v1::ListCheckpointFilesRequest request;
  request.set_name(checkpoint->name());
  absl::StatusOr<v1::ListCheckpointFilesResponse> files =
      connection_->Call(connection_->checkpoints(),
                        &v1::CheckpointService::StubInterface::ListCheckpointFiles, request);
  EXPECT_TRUE(files.ok()) << files.status();
  if (!files.ok()) return hashes;
  for (const v1::CheckpointFile& file : files->files()) {
    if (absl::EndsWith(file.path(), ".safetensors") || absl::EndsWith(file.path(), ".bin")) {
      hashes[file.path()] = file.sha256();
    }
  }
  return hashes;
}

std::string System::Metrics() {
  std::pair<std::string, std::string> host_port =
      absl::StrSplit(http_address_, absl::MaxSplits(':', 1));
  int port = 0;
  EXPECT_TRUE(absl::SimpleAtoi(host_port.second, &port));
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  inet_pton(AF_INET, host_port.first.c_str(), &to.sin_addr);
  std::string text;
  if (connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0) {
    std::string request = "GET /metrics HTTP/1.0\r\n\r\n";
    EXPECT_EQ(write(fd, request.data(), request.size()), static_cast<ssize_t>(request.size()));
    char buffer[4096];
    ssize_t n = 0;
    while ((n = read(fd, buffer, sizeof(buffer))) > 0) text.append(buffer, static_cast<size_t>(n));
  }
  close(fd);
  return text;
}

}  // namespace millrace
