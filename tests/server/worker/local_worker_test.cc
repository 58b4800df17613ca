// millrace-worker without a daemon, as a person runs it.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/base/file.h"
#include "server/worker/job_lock.h"
#include "tests/server/worker/temp_folder.h"
#include "tests/server/worker/tiny_job.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

class LocalWorkerTest : public ::testing::Test {
 protected:
  LocalWorkerTest() : folder_(MakeTempFolder()) { WriteTinyText(folder_ + "/text.txt"); }

  void WriteJob(const std::string& text) { std::ofstream(folder_ + "/job.yaml") << text; }

  int Start(const std::vector<std::string>& arguments) {
    const int pid = fork();
    if (pid != 0) return pid;
    const std::string program =
        absl::StrCat(getenv("TEST_SRCDIR"), "/millrace/server/worker/millrace-worker");
    std::vector<char*> argv = {const_cast<char*>(program.c_str())};
    for (const std::string& argument : arguments)
      argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    const auto redirect = [this](const char* name, int fd) {
      dup2(open((folder_ + name).c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644), fd);
    };
    redirect("/out", STDOUT_FILENO);
    redirect("/log", STDERR_FILENO);
    execv(program.c_str(), argv.data());
    _exit(127);
  }

  int StartJob() { return Start({"--spec", folder_ + "/job.yaml", "--dir", folder_ + "/run"}); }

  // The exit code; 128 and more for a signal.
  static int Wait(int pid) {
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  std::vector<nlohmann::json> Lines() {
    std::vector<nlohmann::json> lines;
    std::ifstream file(folder_ + "/out");
    std::string line;
    // The last line may be on its way.
    while (std::getline(file, line) && !file.eof()) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }

  // At most 30 s.
  static void WaitUntil(const std::function<bool()>& condition) {
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    while (!condition() && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(2));
  }

  std::string Log() { return ReadFile(folder_ + "/log").value_or(""); }

  const std::string folder_;
};

TEST_F(LocalWorkerTest, PrintsOneObjectAStep) {
  WriteJob(TinyJob(folder_ + "/text.txt", 12));
  EXPECT_EQ(Wait(StartJob()), 0) << Log();
  const auto lines = Lines();
  ASSERT_EQ(lines.size(), 12);
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i]["step"], i + 1);
    EXPECT_GT(lines[i]["loss"].get<double>(), 0);
    EXPECT_EQ(lines[i]["tokens"], 64);
    EXPECT_EQ(lines[i]["total_tokens"], 64 * (i + 1));
    for (const char* field : {"gradient_norm", "learning_rate", "step_seconds", "tokens_per_second",
                              "speed_of_light_ratio"}) {
      EXPECT_TRUE(lines[i][field].is_number()) << field;
    }
  }
  EXPECT_THAT(Log(), HasSubstr("[info] SUCCEEDED after step 12"));
}

TEST_F(LocalWorkerTest, BeginsWithTheModelOfAnotherRunAndItsTokenizer) {
  WriteJob(TinyJob(folder_ + "/text.txt", 20));
  ASSERT_EQ(Wait(StartJob()), 0) << Log();
  const double trained = Lines().back()["loss"];
  const std::string model = folder_ + "/run/checkpoints/20";
  WriteJob(absl::StrCat("name: tuned\nmodel: {from: '", model, "'}\ndata: {train: '", folder_,
                        "/text.txt', sequence_length: 32}\n"
                        "train: {steps: 2, tokens_per_step: 64, threads: 1}\n"));
  ASSERT_EQ(Wait(Start({"--spec", folder_ + "/job.yaml", "--dir", folder_ + "/tuned"})), 0)
      << Log();
  ASSERT_EQ(Lines().size(), 22);
  EXPECT_EQ(Lines()[20]["step"], 1);
  EXPECT_LT(Lines()[20]["loss"], trained + 0.5);
  EXPECT_EQ(*ReadFile(folder_ + "/tuned/checkpoints/2/tokenizer.json"),
            *ReadFile(model + "/tokenizer.json"));
}

TEST_F(LocalWorkerTest, StopsOnSigtermWithACheckpointAndGoesOn) {
  WriteJob(TinyJob(folder_ + "/text.txt", 100'000, "checkpoint: {every_steps: 0}\n"));
  int pid = StartJob();
  WaitUntil([this] { return !Lines().empty(); });
  kill(pid, SIGTERM);
  EXPECT_EQ(Wait(pid), 4) << Log();
  const auto before = Lines();
  ASSERT_FALSE(before.empty());

  pid = StartJob();
  WaitUntil([&] {
    auto owner = FindJobLockOwner(folder_ + "/run", absl::Seconds(30));
    return owner.ok() && owner->has_value() && (*owner)->pid == pid;
  });
  EXPECT_EQ(Wait(StartJob()), 1) << "one worker a folder at a time";
  EXPECT_THAT(Log(), HasSubstr(absl::StrCat("is in use by process ", pid)));
  WaitUntil([&] { return Lines().size() > before.size(); });
  kill(pid, SIGINT);
  EXPECT_EQ(Wait(pid), 4);
  ASSERT_GT(Lines().size(), before.size());
  EXPECT_EQ(Lines()[before.size()]["step"], before.size() + 1);
}

TEST_F(LocalWorkerTest, ExplainsItsExitCodes) {
  EXPECT_EQ(Wait(Start({"--help"})), 0);
  EXPECT_THAT(*ReadFile(folder_ + "/out"), HasSubstr("5  the loss is no longer a number"));
}

TEST_F(LocalWorkerTest, TellsWhatIsWrongByExitCodeAndField) {
  EXPECT_EQ(Wait(Start({"--spec", "job.yaml"})), 2);
  EXPECT_EQ(Wait(Start({"--no-such-flag"})), 2);
  EXPECT_EQ(Wait(StartJob()), 3) << "there is no job file";
  EXPECT_THAT(Log(), HasSubstr("job.yaml: No such file"));

  WriteJob("train: {stpes: 3}\n");
  EXPECT_EQ(Wait(StartJob()), 3);
  EXPECT_THAT(Log(), HasSubstr("train.stpes"));

  WriteJob(TinyJob(folder_ + "/none.txt", 10));
  EXPECT_EQ(Wait(StartJob()), 3);
  EXPECT_THAT(Log(), HasSubstr("none.txt"));

  WriteJob(TinyJob(folder_ + "/text.txt", 10, "memory: {device_budget: 1KiB}\n"));
  EXPECT_EQ(Wait(StartJob()), 3);
  EXPECT_THAT(Log(), HasSubstr("memory.device_budget"));
  EXPECT_TRUE(Lines().empty()) << "nothing but steps goes to standard output";
}

}  // namespace
}  // namespace millrace
