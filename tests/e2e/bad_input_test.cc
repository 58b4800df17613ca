// What people get wrong: each is one line that names field, value and fix, with a code of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "tests/e2e/system.h"

namespace millrace {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class BadInputTest : public ::testing::Test {
 protected:
  // One daemon for all of them: nothing here harms it.
  static void SetUpTestSuite() {
    system_ = new System();
    system_->StartDaemon();
    system_->UploadText();
  }
  static void TearDownTestSuite() {
    delete system_;
    system_ = nullptr;
  }

  // Expects an error of one line.
  void ExpectError(const RunResult& result, int exit_code,
                   const ::testing::Matcher<std::string>& text) {
    EXPECT_EQ(result.exit_code, exit_code) << result.output << result.errors;
    EXPECT_THAT(result.errors, text);
    EXPECT_EQ(std::count(result.errors.begin(), result.errors.end(), '\n'), 1) << result.errors;
    EXPECT_EQ(result.output, "");
  }

  RunResult SubmitText(const std::string& text) {
    return system_->Run({"submit", system_->WriteJobFile(text)});
  }

  // The usual job file with one text replaced.
  RunResult SubmitWith(const std::string& from, const std::string& to) {
    std::string text = JobFileText();
    EXPECT_THAT(text, HasSubstr(from));
    return SubmitText(absl::StrReplaceAll(text, {{from, to}}));
  }

  RunResult Upload(const std::string& id, const std::string& bytes) {
    std::string path = absl::StrCat(system_->folder(), "/", id, ".txt");
    WriteWholeFile(path, bytes);
    return system_->Run({"datasets", "upload", id, path});
  }

  static System* system_;
};

System* BadInputTest::system_ = nullptr;

TEST_F(BadInputTest, MistypedKey) {
  ExpectError(SubmitWith("steps: 60", "stpes: 60"), 3,
              HasSubstr("train.stpes: unknown key; did you mean train.steps?"));
}

TEST_F(BadInputTest, WrongType) {
  ExpectError(SubmitWith("steps: 60", "steps: sixty"), 3,
              HasSubstr("train.steps: \"sixty\" is not a whole number"));
}

TEST_F(BadInputTest, ValueOutOfRange) {
  ExpectError(SubmitWith("steps: 60", "steps: -3"), 3,
              AllOf(HasSubstr("train.steps"), HasSubstr("-3")));
  ExpectError(SubmitWith("learning_rate: 0.003", "learning_rate: 0.003, betas: [0.9, 1.5]"), 3,
              AllOf(HasSubstr("betas"), HasSubstr("1.5")));
  ExpectError(SubmitWith("tokens_per_step: 256", "tokens_per_step: 100"), 3,
              AllOf(HasSubstr("tokens_per_step"), HasSubstr("100")));
}

TEST_F(BadInputTest, ModelThatCannotBeBuilt) {
  ExpectError(SubmitWith("num_attention_heads: 2", "num_attention_heads: 3"), 13,
              AllOf(HasSubstr("32"), HasSubstr("3"), HasSubstr("head")));
  ExpectError(SubmitWith("model_type: llama", "model_type: perceptron"), 13,
              AllOf(HasSubstr("perceptron"), HasSubstr("llama")));
}

TEST_F(BadInputTest, MissingDataset) {
  ExpectError(SubmitWith("datasets/licences", "datasets/nowhere"), 15,
              HasSubstr("datasets/nowhere"));
  ExpectError(SubmitWith("datasets/licences", "/some/file"), 3,
              HasSubstr("millrace datasets upload"));
}

TEST_F(BadInputTest, EmptyDataset) { ExpectError(Upload("empty", ""), 14, HasSubstr("empty")); }

TEST_F(BadInputTest, BinaryDataset) {
  ExpectError(Upload("binary", std::string("\x7f\x45\x4c\x46\x00\x01\xff\xfe", 8)), 14,
              HasSubstr("binary.txt"));
}

TEST_F(BadInputTest, TextShorterThanASequence) {
  EXPECT_EQ(Upload("short", "too short").exit_code, 0);
  ExpectError(SubmitWith("datasets/licences", "datasets/short"), 14,
              AllOf(HasSubstr("datasets/short"), HasSubstr("64")));
}

TEST_F(BadInputTest, BudgetTooSmallForALayer) {
  ExpectError(SubmitText(JobFileText() + "memory: {device_budget: 4KiB}\n"), 17,
              HasSubstr("error: memory.device_budget: "));
}

TEST_F(BadInputTest, BudgetsAndChoicesThatContradict) {
  const auto with = [](const std::string& lines) { return JobFileText() + lines; };
  ExpectError(SubmitText(with("memory: {host_budget: 4KiB, device_budget: 1GiB}\n")), 17,
              HasSubstr("error: memory.host_budget: "));
  ExpectError(SubmitText(with("memory: {host_budget: 900TiB, device_budget: 900TiB}\n")), 3,
              AllOf(HasSubstr("memory.device_budget"), HasSubstr("memory.host_budget")));
  ExpectError(SubmitText(with("memory: {link_gbps: 10}\n")), 3,
              AllOf(HasSubstr("memory.link_gbps"), HasSubstr("cpu-discrete")));
  ExpectError(SubmitText(with("memory: {device: rtx-4090}\n")), 3,
              AllOf(HasSubstr("memory.device"), HasSubstr("rtx-4090"), HasSubstr("cpu-discrete")));
  ExpectError(SubmitText(with("memory: {plan: {resident_units: 3}}\n")), 3,
              AllOf(HasSubstr("memory.plan.resident_units"), HasSubstr("3"), HasSubstr("2")));
  ExpectError(SubmitText(with("memory: {plan: {activations: some}}\n")), 3,
              AllOf(HasSubstr("memory.plan.activations"), HasSubstr("some"), HasSubstr("keep")));
  ExpectError(SubmitText(with("trace: {steps: [59, 61]}\n")), 3,
              AllOf(HasSubstr("trace.steps"), HasSubstr("61"), HasSubstr("60")));
  ExpectError(SubmitText(with("precision: {recipe: huge}\n")), 3,
              AllOf(HasSubstr("precision.recipe"), HasSubstr("huge"), HasSubstr("full")));
}

TEST_F(BadInputTest, UnknownDeviceProfile) {
  const std::string file = system_->WriteJobFile(JobFileText());
  ExpectError(system_->Run({"plan", file, "--device", "rtx-3080"}), 19,
              AllOf(HasSubstr("device: "), HasSubstr("rtx-3080"), HasSubstr("rtx-3080-10gb")));
}

TEST_F(BadInputTest, UnknownJob) {
  for (const char* command :
       {"show", "watch", "logs", "trace", "pause", "resume", "cancel", "delete"}) {
    ExpectError(system_->Run({command, "nobody"}), 4, HasSubstr("jobs/nobody"));
  }
  ExpectError(system_->Run({"checkpoints", "list", "nobody"}), 4, HasSubstr("jobs/nobody"));
}

TEST_F(BadInputTest, SecondJobWithTheSameId) {
  system_->Submit("twin");
  // The same job again is that job.
  system_->Submit("twin");
  JobOptions other;
  other.steps = 61;
  ExpectError(system_->Run({"submit", system_->WriteJobFile(JobFileText(other)), "--id", "twin"}),
              6, HasSubstr("jobs/twin"));
}

TEST_F(BadInputTest, BadId) {
  ExpectError(system_->Run({"submit", system_->WriteJobFile(JobFileText()), "--id", "No Good"}), 3,
              HasSubstr("No Good"));
}

TEST_F(BadInputTest, CheckpointStepThatDoesNotExist) {
  system_->Submit("done");
  ASSERT_EQ(system_->WaitForEnd("done").state(), v1::Job::SUCCEEDED);
  ExpectError(system_->Run({"checkpoints", "show", "done", "17"}), 16,
              AllOf(HasSubstr("17"), HasSubstr("60")));
  ExpectError(system_->Run({"checkpoints", "show", "done", "some"}), 3, HasSubstr("some"));
}

TEST_F(BadInputTest, NoDaemon) {
  ExpectError(RunProgram({ProgramPath("client/cli/millrace"), "--server", "127.0.0.1:1", "jobs"}),
              8, AllOf(HasSubstr("127.0.0.1:1"), HasSubstr("millraced")));
}

TEST_F(BadInputTest, PortTaken) {
  RunResult second = RunProgram(
      {ProgramPath("server/millraced"), absl::StrCat("--data_dir=", system_->folder(), "/second"),
       absl::StrCat("--listen=", system_->address()), "--http_listen=127.0.0.1:0"});
  EXPECT_EQ(second.exit_code, 1);
  EXPECT_THAT(second.errors, HasSubstr(system_->address()));
}

TEST_F(BadInputTest, DataFolderTaken) {
  RunResult second =
      RunProgram({ProgramPath("server/millraced"), absl::StrCat("--data_dir=", system_->data_dir()),
                  "--listen=127.0.0.1:0", "--http_listen=127.0.0.1:0"});
  EXPECT_EQ(second.exit_code, 1);
  EXPECT_THAT(second.errors, HasSubstr(system_->data_dir()));
}

TEST_F(BadInputTest, LossThatIsNotFinite) {
  JobOptions options;
  options.learning_rate = 1e25;
  options.checkpoint_every = 1;
  RunResult run = system_->Run(
      {"submit", system_->WriteJobFile(JobFileText(options)), "--id", "nan", "--watch"});
  EXPECT_EQ(run.exit_code, 9) << run.output << run.errors;
  EXPECT_THAT(run.output, HasSubstr("nan FAILED (NON_FINITE_LOSS)"));
  EXPECT_EQ(system_->Run({"checkpoints", "show", "nan", "latest"}).exit_code, 0);
}

}  // namespace
}  // namespace millrace
