#include "server/config.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace millrace {
namespace {

// A program that is there on every machine.
constexpr char kWorker[] = "--worker_binary=/bin/true";

// Where Bazel runs a test there is none.
[[maybe_unused]] const int kHome = setenv("HOME", "/home/tester", /*overwrite=*/1);

std::string WriteConfig(const std::string& text) {
  const std::string path = absl::StrCat(testing::TempDir(), "/config.yaml");
  std::ofstream(path) << text;
  return path;
}

std::string ErrorOf(const std::vector<std::string>& arguments) {
  const auto parsed = ParseCommandLine(arguments);
  EXPECT_FALSE(parsed.ok());
  return std::string(parsed.status().message());
}

TEST(ConfigTest, DefaultsNeedNothingButAWorker) {
  const auto parsed = ParseCommandLine({kWorker, "--data_dir=/tmp/x/"});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->config.data_dir, "/tmp/x");
  EXPECT_EQ(parsed->config.listen, "127.0.0.1:7473");
  EXPECT_EQ(parsed->config.drain_timeout, absl::Seconds(30));
}

TEST(ConfigTest, FlagsGoBeforeTheFileAndTheFileBeforeDefaults) {
  const std::string file =
      WriteConfig("listen: 127.0.0.1:1000\ndrain_timeout: 2m\nmax_running_jobs: 2\n");
  const auto parsed = ParseCommandLine({kWorker, "--config", file, "--listen", "[::1]:0"});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->config.listen, "[::1]:0");
  EXPECT_EQ(parsed->config.drain_timeout, absl::Minutes(2));
  EXPECT_EQ(parsed->config.max_running_jobs, 2);
  EXPECT_EQ(parsed->config.data_dir, "/home/tester/.local/share/millrace/node");
}

TEST(ConfigTest, ModelDirsAreAListAndFlagsReplaceIt) {
  const std::string file = WriteConfig("model_dirs: [/models, /srv/more/]\n");
  auto parsed = ParseCommandLine({kWorker, "--config", file});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->config.model_dirs, (std::vector<std::string>{"/models", "/srv/more"}));
  parsed = ParseCommandLine({kWorker, "--config", file, "--model-dir", "/a", "--model-dir=/b"});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->config.model_dirs, (std::vector<std::string>{"/a", "/b"}));
  parsed = ParseCommandLine({kWorker, "--config", WriteConfig("model_dirs: /one\n")});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->config.model_dirs, std::vector<std::string>{"/one"});
  EXPECT_TRUE(absl::StrContains(
      ErrorOf({kWorker, "--config", WriteConfig("model_dirs: [{a: b}]\n")}), "model_dirs"));
  EXPECT_TRUE(absl::StrContains(ErrorOf({kWorker, "--model-dir", ""}), "--model-dir: "));
}

TEST(ConfigTest, UnknownKeysAndFlagsAreRefusedByName) {
  const std::string file = WriteConfig("listen: 127.0.0.1:1\nlisten_port: 7\n");
  const std::string error = ErrorOf({kWorker, "--config", file});
  EXPECT_TRUE(absl::StrContains(error, "config.yaml:2: unknown key 'listen_port'")) << error;
  EXPECT_TRUE(absl::StrContains(ErrorOf({kWorker, "--lisen=x"}), "--lisen=x"));
  EXPECT_TRUE(absl::StrContains(ErrorOf({"--config=/nowhere.yaml"}), "/nowhere.yaml"));
}

TEST(ConfigTest, WrongValuesNameSettingAndValue) {
  EXPECT_TRUE(absl::StrContains(ErrorOf({kWorker, "--max_running_jobs=none"}),
                                "--max_running_jobs: 'none' is not a whole number"));
  EXPECT_TRUE(
      absl::StrContains(ErrorOf({kWorker, "--drain_timeout=30"}), "is not a duration such as 30s"));
  const std::string file = WriteConfig("log_level: loud\n");
  EXPECT_TRUE(absl::StrContains(ErrorOf({kWorker, "--config", file}),
                                "config.yaml:1: log_level: 'loud' is not debug"));
  EXPECT_TRUE(
      absl::StrContains(ErrorOf({"--worker_binary=/nowhere"}), "/nowhere is not a program"));
}

TEST(ConfigTest, OnlyLoopbackIsListenedOn) {
  for (const char* address : {"0.0.0.0:7473", "[::]:7473", "192.168.1.2:7473", "example.com:1"}) {
    const std::string error = ErrorOf({kWorker, absl::StrCat("--listen=", address)});
    EXPECT_TRUE(absl::StrContains(error, "is not a loopback address; Millrace does not")) << error;
    EXPECT_TRUE(absl::StrContains(ErrorOf({kWorker, absl::StrCat("--http_listen=", address)}),
                                  "http_listen"));
  }
  for (const char* address : {"127.0.0.1", "127.0.0.1:", "127.0.0.1:70000", ":7473", "[::1:7"}) {
    EXPECT_TRUE(absl::StrContains(ErrorOf({kWorker, absl::StrCat("--listen=", address)}),
                                  "is not of the form host:port"))
        << address;
  }
  for (const char* address : {"localhost:1", "127.1.2.3:1", "[::1]:65535"}) {
    EXPECT_TRUE(ParseCommandLine({kWorker, absl::StrCat("--listen=", address)}).ok()) << address;
  }
}

TEST(ConfigTest, HelpListsEverySetting) {
  const auto parsed = ParseCommandLine({"--help"});
  ASSERT_TRUE(parsed.ok());
  for (const char* flag : {"--config", "--data_dir", "--listen", "--http_listen", "--drain_timeout",
                           "--max_running_jobs", "--worker_binary", "--log_level"}) {
    EXPECT_TRUE(absl::StrContains(parsed->print_and_end, flag)) << flag;
  }
}

}  // namespace
}  // namespace millrace
