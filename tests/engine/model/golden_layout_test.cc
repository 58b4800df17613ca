// The tensors that layouts expect in a model directory are those that transformers wrote there.
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "engine/base/file.h"
#include "engine/model/families.h"
#include "engine/model/file_tensor.h"
#include "engine/model/slab_layout.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/golden/golden_names.h"

namespace millrace {
namespace {

using nlohmann::json;
using Shapes = std::map<std::string, std::vector<int64_t>>;

Shapes ShapesInFile(const std::string& path) {
  const std::string bytes = *ReadFile(path);
  uint64_t size = 0;
  std::memcpy(&size, bytes.data(), sizeof(size));
  Shapes shapes;
  const json header = json::parse(bytes.substr(sizeof(size), size));
  for (const auto& [name, tensor] : header.items()) {
    if (name != "__metadata__") shapes[name] = tensor.at("shape").get<std::vector<int64_t>>();
  }
  return shapes;
}

class GoldenLayoutTest : public testing::TestWithParam<std::string> {};

TEST_P(GoldenLayoutTest, NamesTheTensorsOfTheFile) {
  const std::string folder = kGoldenRoot + GetParam();
  const absl::StatusOr<ModelSpec> spec =
      ParseModelConfig(json::parse(*ReadFile(folder + "/config.json")), std::nullopt);
  ASSERT_TRUE(spec.ok()) << spec.status();
  const absl::StatusOr<std::vector<FileTensor>> tensors = ListFileTensors(MakeSlabLayouts(*spec));
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  Shapes shapes;
  for (const FileTensor& tensor : *tensors) shapes[tensor.name] = tensor.shape();
  EXPECT_THAT(shapes, testing::ContainerEq(ShapesInFile(folder + "/model.safetensors")));
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenLayoutTest, testing::ValuesIn(GoldenNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace millrace
