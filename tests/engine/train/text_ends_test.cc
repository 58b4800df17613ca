#include "engine/train/text_ends.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace millrace {
namespace {

class TextEndsTest : public testing::Test {
 protected:
  TextEndsTest() : folder_(testing::TempDir() + "/text_ends") {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ + "/" + name) << text;
  }
  absl::StatusOr<std::vector<int32_t>> Read() {
    return ReadTextEnds(folder_, **MakeTokenizer("byte"));
  }

  const std::string folder_;
};

TEST_F(TextEndsTest, AllThatAnyFileSaysEndsAText) {
  EXPECT_EQ(*Read(), std::vector<int32_t>{256});
  Write("config.json", R"({"eos_token_id": 7})");
  Write("generation_config.json", R"({"eos_token_id": [9, 7, 3]})");
  EXPECT_EQ(*Read(), (std::vector<int32_t>{3, 7, 9, 256}));
}

TEST_F(TextEndsTest, AnIdThatIsNoneIsRefusedByName) {
  Write("config.json", R"({"eos_token_id": [1, "x"]})");
  const absl::Status status = Read().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("config.json: eos_token_id: \"x\""), std::string::npos) << status;
}

TEST_F(TextEndsTest, ANestThatNoErrorCouldPrintIsRefused) {
  constexpr size_t kDepth = 1'000'000;
  Write("generation_config.json",
        R"({"eos_token_id": )" + std::string(kDepth, '[') + std::string(kDepth, ']') + "}");
  const absl::Status status = Read().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("generation_config.json"), std::string::npos) << status;
}

}  // namespace
}  // namespace millrace
