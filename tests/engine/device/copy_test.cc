#include "engine/device/cpu/copy.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace millrace {
namespace {

TEST(CopyMemoryTest, CopiesEverySizeAndAlignmentAndNothingElse) {
  constexpr size_t kLarge = size_t{256} << 10;
  constexpr size_t kRoom = 2 * kLarge + 8192;
  std::vector<uint8_t> source(kRoom), expected(kRoom, 0xee), target(kRoom);
  for (size_t i = 0; i < kRoom; ++i) source[i] = static_cast<uint8_t>(i * 7 + i / 251);
  for (size_t bytes :
       {size_t{0}, size_t{1}, size_t{4096}, kLarge - 1, kLarge, kLarge + 17, 2 * kLarge + 4096}) {
    for (const auto& [to, from] : {std::pair{0, 0}, {1, 3}, {16, 64}, {64, 3}}) {
      std::fill(target.begin(), target.end(), 0xee);
      CopyMemory(target.data() + to, source.data() + from, bytes);
      std::fill(expected.begin(), expected.end(), 0xee);
      std::copy_n(source.begin() + static_cast<int64_t>(from), bytes,
                  expected.begin() + static_cast<int64_t>(to));
      EXPECT_TRUE(target == expected) << bytes << " bytes from " << from << " to " << to;
    }
  }
}

}  // namespace
}  // namespace millrace
