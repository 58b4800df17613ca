#include "engine/model/file_tensor.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kFused[] = "layers.0.attention.query_key_value.weight";

// A block whose first tensor is a matrix [rows, 4] of these parts, at element 32.
std::vector<SlabLayout> Layouts(int64_t rows, std::vector<TensorPart> parts) {
  SlabLayout slab{.kind = UnitKind::kBlock, .index = 3};
  slab.tensors.push_back({TensorRole::kQkv, rows, 4, 32, true, std::move(parts)});
  slab.tensors.push_back(
      {TensorRole::kAttentionNorm, 4, 1, 96, false, {{"layers.0.norm.weight", 0, 4}}});
  slab.count = 2048;
  return {slab};
}

std::string ErrorOf(int64_t rows, std::vector<TensorPart> parts) {
  const auto tensors = ListFileTensors(Layouts(rows, std::move(parts)));
  EXPECT_TRUE(absl::IsInternal(tensors.status())) << tensors.status();
  return std::string(tensors.status().message());
}

TEST(ListFileTensors, PartsOfSeveralNamesAreATensorEach) {
  const auto tensors = ListFileTensors(Layouts(5, {{"q", 0, 3}, {"k", 3, 2, true}}));
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), 3);
  EXPECT_EQ((*tensors)[0].name, "q");
  EXPECT_THAT((*tensors)[0].shape(), ElementsAre(3, 4));
  EXPECT_EQ((*tensors)[0].runs[0].unit, 3);
  EXPECT_EQ((*tensors)[0].runs[0].offset, 32);
  EXPECT_EQ((*tensors)[1].name, "k");
  EXPECT_THAT((*tensors)[1].shape(), ElementsAre(4, 2));
  EXPECT_EQ((*tensors)[1].runs[0].offset, 32 + 3 * 4);
  EXPECT_THAT((*tensors)[2].shape(), ElementsAre(4));
}

TEST(ListFileTensors, RunsOfOneTensorComeInTheFilesOrder) {
  // Two heads of one row: q, k, v of the first, then of the second.
  const auto tensors = ListFileTensors(Layouts(6, {{kFused, 0, 1, false, 0, 6},
                                                   {kFused, 1, 1, false, 3, 6},
                                                   {kFused, 2, 1, false, 1, 6},
                                                   {kFused, 3, 1, false, 4, 6},
                                                   {kFused, 4, 1, false, 2, 6},
                                                   {kFused, 5, 1, false, 5, 6}}));
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), 2);
  const FileTensor& fused = (*tensors)[0];
  EXPECT_EQ(fused.rows, 6);
  std::vector<int64_t> slab_rows;
  for (const RowRun& run : fused.runs) slab_rows.push_back((run.offset - 32) / 4);
  EXPECT_THAT(slab_rows, ElementsAre(0, 2, 4, 1, 3, 5));
}

TEST(ListFileTensors, LayoutsThatDoNotCoverATensorAreRefused) {
  EXPECT_THAT(ErrorOf(2, {{kFused, 0, 2, false, 0, 3}}),
              HasSubstr(std::string(kFused) + "\" covers 2 rows of 3"));
  EXPECT_THAT(ErrorOf(2, {{kFused, 0, 2, false, 1, 3}}), HasSubstr("leaves out row 0"));
  EXPECT_THAT(ErrorOf(4, {{kFused, 0, 2, false, 0, 3}, {kFused, 2, 2, false, 1, 3}}),
              HasSubstr("has row 1 twice"));
  EXPECT_THAT(ErrorOf(4, {{kFused, 0, 2, false, 0, 4}, {kFused, 2, 2, false, 2, 5}}),
              HasSubstr("differs from part to part"));
  EXPECT_THAT(ErrorOf(2, {{kFused, 0, 2, false, 1, 2}}), HasSubstr("leaves out row 0"));
}

}  // namespace
}  // namespace millrace
