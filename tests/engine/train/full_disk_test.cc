// A disk that fills up while a checkpoint is written, played by a limit on the size of files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "engine/train/checkpoint.h"
#include "tests/engine/train/checkpoint_fixture.h"

namespace millrace {
namespace {

using testing::UnorderedElementsAre;

constexpr int kWritten = 10, kResourceExhausted = 11, kOtherError = 12;

// Exit status of a process that may write at most `limit_bytes` to a file.
int WriteLimited(rlim_t limit_bytes, const std::string& folder, const ModelSpec& model,
                 const HostState& state, int64_t step) {
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {limit_bytes, limit_bytes};
    setrlimit(RLIMIT_FSIZE, &limit);
    const auto info = WriteCheckpoint(folder, model, state, StateOfStep(step));
    _exit(info.ok()                                                      ? kWritten
          : info.status().code() == absl::StatusCode::kResourceExhausted ? kResourceExhausted
                                                                         : kOtherError);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class FullDiskTest : public testing::TestWithParam<int64_t> {};

TEST_P(FullDiskTest, IsResourceExhaustedAndKeepsOlderCheckpoints) {
  const ModelSpec model = TinyLlama();
  const auto state = RandomState(model, DType::kBF16, 1);
  const std::string folder = NewFolder();
  ASSERT_EQ(WriteLimited(RLIM_INFINITY, folder, model, *state, 10), kWritten);
  EXPECT_EQ(WriteLimited(static_cast<rlim_t>(GetParam()), folder, model, *state, 20),
            kResourceExhausted);
  EXPECT_THAT(NamesIn(folder), UnorderedElementsAre("10"));
  const auto info = ReadManifest(folder + "/10");
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_TRUE(VerifyHashes(*info).ok());
}

// The limits stop the config, the weights, and the optimizer's state.
INSTANTIATE_TEST_SUITE_P(Limits, FullDiskTest, testing::Values(0, 10, 2000, 20000, 100000));

}  // namespace
}  // namespace millrace
