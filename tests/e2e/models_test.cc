// Models people bring: uploaded or registered, trained on, exported, and brought again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/e2e/system.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string FineTune(const std::string& model, const std::string& more = "") {
  return absl::StrCat("name: tuned\nmodel: {from: ", model,
                      "}\ndata: {train: datasets/licences, sequence_length: 32}\n"
                      "train: {steps: 10, tokens_per_step: 128, seed: 7, threads: 1}\n",
                      more);
}

// A tokenizer.json of single characters: fewer tokens than the golden models have.
std::string CharacterTokenizer() {
  nlohmann::json vocab = {{"<|endoftext|>", 0}};
  for (const std::string& character :
       {std::string("\xc4\xa0"), std::string("\xc4\x8a"), std::string(","), std::string(".")}) {
    vocab[character] = vocab.size();
  }
  for (char c = 'a'; c <= 'z'; ++c) vocab[std::string(1, c)] = vocab.size();
  const nlohmann::json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  const nlohmann::json tokenizer = {
      {"version", "1.0"},
      {"added_tokens",
       {{{"id", 0},
         {"content", "<|endoftext|>"},
         {"single_word", false},
         {"lstrip", false},
         {"rstrip", false},
         {"normalized", false},
         {"special", true}}}},
      {"pre_tokenizer", byte_level},
      {"decoder", byte_level},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", nlohmann::json::array()}}}};
  return tokenizer.dump();
}

double FirstLoss(const std::vector<v1::JobEvent>& events) {
  for (const v1::JobEvent& event : events) {
    if (event.has_step()) return event.step().loss();
  }
  return 0;
}

class ModelsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // The golden llama with a tokenizer, and files that no model needs.
    folder_ = system_.folder() + "/My_Llama.v1";
    fs::create_directories(folder_ + "/onnx");
    for (const char* name : {"config.json", "model.safetensors"}) {
      fs::copy_file(absl::StrCat("tests/golden/llama_gqa/", name),
                    absl::StrCat(folder_, "/", name));
    }
    std::ofstream(folder_ + "/tokenizer.json") << CharacterTokenizer();
    std::ofstream(folder_ + "/README.md") << "A card.";
    std::ofstream(folder_ + "/onnx/model.onnx") << "Something else.";
  }

  void StartDaemon() {
    system_.StartDaemon();
    ASSERT_FALSE(HasFatalFailure());
    system_.UploadText();
  }

  std::string MustRun(const std::vector<std::string>& arguments) {
    const RunResult run = system_.Run(arguments);
    EXPECT_EQ(run.exit_code, 0) << run.output << run.errors;
    return run.output + run.errors;
  }
  std::string MustFail(const std::vector<std::string>& arguments) {
    const RunResult run = system_.Run(arguments);
    EXPECT_NE(run.exit_code, 0) << run.output;
    return run.errors;
  }

  System system_;
  std::string folder_;
};

TEST_F(ModelsTest, AnUploadedModelIsFineTunedWithItsTokenizer) {
  StartDaemon();
  EXPECT_THAT(MustRun({"models", "upload", folder_}),
              AllOf(HasSubstr("models/my-llama-v1 READY: llama"), HasSubstr("README.md"),
                    HasSubstr("onnx/model.onnx")));
  EXPECT_THAT(MustRun({"models", "upload", folder_}), HasSubstr("READY"))
      << "once more is the same";
  EXPECT_THAT(MustRun({"models"}), AllOf(HasSubstr("llama"), HasSubstr("37"), HasSubstr("48"),
                                         HasSubstr("F32"), HasSubstr("my-llama-v1")));
  EXPECT_THAT(MustRun({"models", "show", "my-llama-v1"}),
              AllOf(HasSubstr("tokenizer.json"), Not(HasSubstr("README.md"))));

  const std::string file = system_.WriteJobFile(FineTune("models/my-llama-v1"));
  EXPECT_THAT(MustRun({"plan", file}), HasSubstr("step"));
  EXPECT_THAT(MustRun({"submit", file, "--id", "tuned", "--watch"}), HasSubstr("SUCCEEDED"));
  EXPECT_THAT(MustRun({"show", "tuned", "-o", "yaml"}), HasSubstr("from: models/my-llama-v1"));

  // A job that waits needs it; one that has ended does not.
  JobOptions other;
  other.steps = 10'000'000;
  other.checkpoint_every = 0;
  system_.Submit("busy", other);
  system_.WriteJobFile(FineTune("models/my-llama-v1"));
  MustRun({"submit", file, "--id", "waiting"});
  EXPECT_THAT(MustFail({"models", "delete", "my-llama-v1"}), HasSubstr("jobs/waiting"));
  MustRun({"cancel", "waiting", "--wait"});
  MustRun({"cancel", "busy", "--wait"});
  MustRun({"models", "delete", "my-llama-v1"});
  EXPECT_THAT(MustFail({"submit", file, "--id", "late"}), HasSubstr("models/my-llama-v1"));

  // The checkpoint is a whole model, and may be begun with.
  const std::string latest = system_.WriteJobFile(FineTune("jobs/tuned/checkpoints/latest"));
  MustRun({"submit", latest, "--id", "again", "--watch"});
  EXPECT_THAT(MustRun({"show", "again", "-o", "yaml"}),
              HasSubstr("from: jobs/tuned/checkpoints/10"));
  const std::string target = system_.folder() + "/tuned";
  MustRun({"checkpoints", "export", "again", "--format", "hf", "--out", target});
  EXPECT_TRUE(fs::exists(target + "/tokenizer.json"));
}

TEST_F(ModelsTest, AGgufExportIsAModelToBeginWith) {
  StartDaemon();
  JobOptions options;
  options.steps = 100;
  system_.Submit("tiny", options);
  ASSERT_EQ(system_.WaitForEnd("tiny").state(), v1::Job::SUCCEEDED);
  const std::string file = system_.folder() + "/tiny.gguf";
  EXPECT_THAT(MustRun({"checkpoints", "export", "tiny", "--type", "F32", "--out", file}),
              HasSubstr("step 100"));
  EXPECT_THAT(MustRun({"checkpoints", "export", "tiny", "100", "--type", "F32", "--out", file}),
              HasSubstr("step 100"))
      << "once more is the same";
  EXPECT_THAT(MustFail({"checkpoints", "export", "tiny", "--type", "Q3_K"}), HasSubstr("Q3_K"));
  EXPECT_THAT(MustRun({"checkpoints", "list", "tiny"}), HasSubstr("100")) << "it is still complete";

  EXPECT_THAT(MustRun({"models", "upload", file, "--id", "brought"}),
              HasSubstr("models/brought READY: llama"));
  MustRun({"submit", system_.WriteJobFile(FineTune("models/brought")), "--id", "tuned", "--watch"});
  // Where the other ended, not ln(257) = 5.5.
  EXPECT_LT(FirstLoss(system_.AllEvents("tuned")), 4.5);
}

TEST_F(ModelsTest, ModelsAreRegisteredWhereTheOperatorPermits) {
  // The folder is a setting of the daemon.
  system_.AddDaemonFlags({"--model-dir", system_.folder()});
  StartDaemon();
  EXPECT_THAT(MustRun({"models", "register", "mine", folder_}),
              HasSubstr("models/mine READY: llama"));
  EXPECT_THAT(MustRun({"models", "show", "mine"}), HasSubstr(folder_));
  EXPECT_THAT(MustFail({"models", "register", "etc", "/etc"}), HasSubstr("model_dirs"));
  MustRun({"submit", system_.WriteJobFile(FineTune("models/mine")), "--id", "tuned", "--watch"});

  fs::resize_file(folder_ + "/model.safetensors", 100);
  EXPECT_THAT(
      MustFail({"submit", system_.WriteJobFile(FineTune("models/mine")), "--id", "changed"}),
      HasSubstr("has changed"));
  MustRun({"models", "delete", "mine"});
  EXPECT_TRUE(fs::exists(folder_ + "/config.json"));
}

TEST_F(ModelsTest, ATokenizerIsTrainedAndTrainedWith) {
  StartDaemon();
  EXPECT_THAT(MustRun({"tokenizer", "train", "licences", "--vocab-size", "400", "--special-token",
                       "[END]", "--special-token", "[PAD]"}),
              HasSubstr("tokenizers/licences-400: 400 tokens"));
  EXPECT_THAT(MustRun({"tokenizers"}), AllOf(HasSubstr("licences-400"), HasSubstr("400")));
  EXPECT_THAT(MustFail({"tokenizer", "train", "licences", "--vocab-size", "400"}),
              HasSubstr("licences-400"));
  EXPECT_THAT(MustFail({"tokenizer", "train", "licences", "--vocab-size", "10", "--id", "small"}),
              HasSubstr("10"));
  const std::string target = system_.folder() + "/words.json";
  MustRun({"tokenizers", "download", "licences-400", "--out", target});
  std::ifstream words(target);
  EXPECT_THAT(std::string(std::istreambuf_iterator<char>(words), {}),
              AllOf(HasSubstr("\"[END]\""), HasSubstr("\"[PAD]\"")));

  JobOptions options;
  options.extra = "tokenizer: tokenizers/licences-400\n";
  system_.Submit("worded", options);
  ASSERT_EQ(system_.WaitForEnd("worded").state(), v1::Job::SUCCEEDED);
  EXPECT_GT(FirstLoss(system_.AllEvents("worded")), 5.8) << "it is ln 400 = 6.0, not ln 257";
  MustRun({"tokenizers", "delete", "licences-400"});
  EXPECT_THAT(MustFail({"tokenizers", "show", "licences-400"}), HasSubstr("no tokenizer"));
}

}  // namespace
}  // namespace millrace
