#include "client/lib/model_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace millrace {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ModelFilesTest : public testing::Test {
 protected:
  ModelFilesTest() {
    std::string pattern = testing::TempDir() + "/model-XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }

  void Write(const std::string& name, const std::string& content = "x") {
    fs::create_directories(fs::path(folder_ + "/" + name).parent_path());
    std::ofstream(folder_ + "/" + name) << content;
  }

  std::string Refusal() {
    const auto files = ListModelFiles(folder_);
    EXPECT_FALSE(files.ok());
    return std::string(files.status().message());
  }

  std::string folder_;
};

TEST_F(ModelFilesTest, AHubFolderIsSentWithoutWhatNoModelNeeds) {
  for (const char* name :
       {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
        "special_tokens_map.json", "generation_config.json", "vocab.json", "merges.txt",
        "README.md", "LICENSE", ".gitattributes", ".cache/huggingface/x", "pytorch_model.bin",
        "onnx/model.onnx", "consolidated.safetensors"}) {
    Write(name);
  }
  const auto files = ListModelFiles(folder_);
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_THAT(files->files, ElementsAre("config.json", "generation_config.json", "merges.txt",
                                        "model.safetensors", "special_tokens_map.json",
                                        "tokenizer.json", "tokenizer_config.json", "vocab.json"));
  EXPECT_THAT(files->left_out, ElementsAre("LICENSE", "README.md", "consolidated.safetensors",
                                           "onnx/model.onnx", "pytorch_model.bin"));
}

TEST_F(ModelFilesTest, OfShardsThoseThatTheIndexNamesAreSent) {
  Write("config.json");
  Write("model.safetensors.index.json",
        R"({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}})");
  Write("model-1.safetensors");
  Write("consolidated.safetensors");
  EXPECT_THAT(Refusal(), HasSubstr("has no model-2.safetensors"));
  Write("model-2.safetensors");
  const auto files = ListModelFiles(folder_);
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_THAT(files->files, ElementsAre("config.json", "model-1.safetensors", "model-2.safetensors",
                                        "model.safetensors.index.json"));
  EXPECT_THAT(files->left_out, ElementsAre("consolidated.safetensors"));
}

TEST_F(ModelFilesTest, SaysWhatIsMissingAndWhatToDo) {
  Write("README.md");
  EXPECT_THAT(Refusal(), HasSubstr("has no config.json"));
  Write("config.json");
  EXPECT_THAT(Refusal(), HasSubstr("has no model.safetensors"));
  Write("pytorch_model.bin");
  EXPECT_THAT(Refusal(), HasSubstr("save_pretrained()"));
  Write("model.safetensors.index.json", "{}");
  EXPECT_THAT(Refusal(), HasSubstr("is damaged"));
  EXPECT_FALSE(ListModelFiles(folder_ + "/none").ok());
  EXPECT_FALSE(ListModelFiles(folder_ + "/README.md").ok());
}

TEST_F(ModelFilesTest, AGgufFileIsSentAlone) {
  Write("tiny.Q8_0.gguf");
  const auto files = ListModelFiles(folder_ + "/tiny.Q8_0.gguf");
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_THAT(files->files, ElementsAre("tiny.Q8_0.gguf"));
  EXPECT_THAT(files->left_out, IsEmpty());
  EXPECT_THAT(Refusal(), HasSubstr("tiny.Q8_0.gguf"));
}

TEST_F(ModelFilesTest, IdsAreMadeOfTheLastName) {
  EXPECT_EQ(ModelIdFor("/models/SmolLM2-135M_Instruct"), "smollm2-135m-instruct");
  EXPECT_EQ(ModelIdFor("/models/SmolLM2.Q8_0.gguf"), "smollm2-q8-0");
  EXPECT_EQ(ModelIdFor("/models/llama/"), "llama");
  EXPECT_EQ(ModelIdFor("/models/7b--x--"), "b-x");
  EXPECT_EQ(ModelIdFor("/123"), "");
}

}  // namespace
}  // namespace millrace
