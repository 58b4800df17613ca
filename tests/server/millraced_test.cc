// The daemon as a process: what it prints, whom it shares with, and how it ends.
#include <fcntl.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "millrace/v1/node_service.grpc.pb.h"
#include "tests/server/daemon_process.h"

namespace millrace {
namespace {

class MillracedTest : public testing::Test {
 protected:
  MillracedTest()
      : folder_(absl::StrCat(testing::TempDir(), "/",
                             testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }

  std::vector<std::string> Command(std::vector<std::string> more = {}) {
    std::vector<std::string> command = {"server/millraced", "--data_dir=" + data_dir(),
                                        "--listen=127.0.0.1:0", "--http_listen=127.0.0.1:0",
                                        "--worker_binary=/bin/true"};
    command.insert(command.end(), more.begin(), more.end());
    return command;
  }

  std::string data_dir() const { return folder_ + "/data"; }
  std::string ErrorPath(const std::string& name) const { return folder_ + "/" + name; }

  // `listen` or `http_listen` of the running daemon.
  std::string Endpoint(const std::string& key) {
    std::ifstream file(data_dir() + "/endpoint");
    std::string line;
    while (std::getline(file, line)) {
      if (absl::StartsWith(line, key + "=")) return line.substr(key.size() + 1);
    }
    return "";
  }

  const std::string folder_;
};

TEST_F(MillracedTest, TellsWhereItServesAndServesThere) {
  DaemonProcess daemon(Command(), ErrorPath("stderr"));
  const std::string line = daemon.ReadLine();
  ASSERT_TRUE(absl::StrContains(line, "serves gRPC on 127.0.0.1:")) << line << daemon.Stderr();
  EXPECT_TRUE(absl::StrContains(line, Endpoint("listen"))) << line;
  EXPECT_TRUE(absl::StrContains(line, Endpoint("http_listen"))) << line;
  auto stub = v1::NodeService::NewStub(
      grpc::CreateChannel(Endpoint("listen"), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(10)));
  v1::Node node;
  EXPECT_TRUE(stub->GetNode(&context, {}, &node).ok());
  EXPECT_EQ(node.version(), "0.1.0");
}

TEST_F(MillracedTest, TakesAllDescriptorsItMayHave) {
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = 64;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  DaemonProcess daemon(Command(), ErrorPath("stderr"));
  limit.rlim_cur = before;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  ASSERT_NE(daemon.ReadLine(), "") << daemon.Stderr();
  rlimit of_daemon;
  ASSERT_EQ(prlimit(daemon.pid(), RLIMIT_NOFILE, nullptr, &of_daemon), 0);
  EXPECT_EQ(of_daemon.rlim_cur, limit.rlim_max);
}

TEST_F(MillracedTest, IdleItStaysSmall) {
  DaemonProcess daemon(Command(), ErrorPath("stderr"));
  ASSERT_NE(daemon.ReadLine(), "") << daemon.Stderr();
  std::ifstream status(absl::StrCat("/proc/", daemon.pid(), "/status"));
  std::string line;
  int64_t resident_kib = 0;
  while (std::getline(status, line)) {
    if (absl::StartsWith(line, "VmRSS:")) resident_kib = std::stoll(line.substr(6));
  }
  EXPECT_GT(resident_kib, 0);
  EXPECT_LT(resident_kib, 60 * 1024);
}

TEST_F(MillracedTest, TwoDaemonsNeverShareADataFolder) {
  DaemonProcess first(Command(), ErrorPath("first"));
  ASSERT_NE(first.ReadLine(), "") << first.Stderr();
  DaemonProcess second(Command(), ErrorPath("second"));
  EXPECT_EQ(second.ReadLine(), "");
  EXPECT_EQ(second.Wait(), 1);
  EXPECT_TRUE(absl::StrContains(
      second.Stderr(), absl::StrCat("is in use by another millraced (process ", first.pid(), ")")))
      << second.Stderr();
}

TEST_F(MillracedTest, TwoDaemonsNeverShareAPort) {
  DaemonProcess first(Command(), ErrorPath("first"));
  ASSERT_NE(first.ReadLine(), "") << first.Stderr();
  std::vector<std::string> command = Command();
  command[1] += "-2";
  command[2] = "--listen=" + Endpoint("listen");
  DaemonProcess second(command, ErrorPath("second"));
  EXPECT_EQ(second.Wait(), 1);
  EXPECT_TRUE(absl::StrContains(second.Stderr(), "address in use")) << second.Stderr();
}

TEST_F(MillracedTest, OtherThanLoopbackIsRefused) {
  DaemonProcess daemon(Command({"--listen=0.0.0.0:7473"}), ErrorPath("stderr"));
  EXPECT_EQ(daemon.Wait(), 2);
  EXPECT_TRUE(absl::StrContains(daemon.Stderr(), "is not a loopback address")) << daemon.Stderr();
}

TEST_F(MillracedTest, EndsWhenAskedAndCanBeStartedAgain) {
  for (const int signal : {SIGTERM, SIGINT}) {
    DaemonProcess daemon(Command(), ErrorPath("stderr"));
    ASSERT_NE(daemon.ReadLine(), "") << daemon.Stderr();
    daemon.Signal(signal);
    EXPECT_EQ(daemon.Wait(), 0);
    EXPECT_FALSE(std::filesystem::exists(data_dir() + "/endpoint"));
  }
}

TEST_F(MillracedTest, StartsAgainAfterAKill) {
  for (int i = 0; i < 2; ++i) {
    DaemonProcess daemon(Command(), ErrorPath("stderr"));
    ASSERT_NE(daemon.ReadLine(), "") << daemon.Stderr();
    daemon.Signal(SIGKILL);
    EXPECT_EQ(daemon.Wait(), -1);
  }
}

}  // namespace
}  // namespace millrace
