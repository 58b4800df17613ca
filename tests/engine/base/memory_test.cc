#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "engine/base/aligned_buffer.h"
#include "engine/base/dtype.h"
#include "gtest/gtest.h"

namespace millrace {
namespace {

TEST(AlignedBufferTest, IsZeroedAndPageAligned) {
  absl::StatusOr<AlignedBuffer> buffer = AlignedBuffer::Allocate(5000, "a test");
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(buffer->size(), 8192u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % kSlabAlignment, 0u);
  for (size_t i = 0; i < buffer->size(); ++i) ASSERT_EQ(buffer->data()[i], std::byte{0});
}

TEST(AlignedBufferTest, ALargeOneBeginsWhereAHugePageCan) {
  constexpr size_t kHugePage = size_t{2} << 20;
  for (size_t bytes : {kHugePage, kHugePage + 1, 5 * kHugePage - 4096}) {
    AlignedBuffer buffer = *AlignedBuffer::Allocate(bytes, "a test");
    EXPECT_EQ(buffer.size(), AlignUp(bytes, kSlabAlignment));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % kHugePage, 0u);
    buffer.data()[0] = buffer.data()[buffer.size() - 1] = std::byte{1};
  }
}

TEST(AlignedBufferTest, MovesWithItsMemory) {
  AlignedBuffer first = *AlignedBuffer::Allocate(1, "a test");
  std::byte* data = first.data();
  AlignedBuffer second = std::move(first);
  EXPECT_EQ(second.data(), data);
  first = std::move(second);
  EXPECT_EQ(first.data(), data);
  EXPECT_EQ(AlignedBuffer::Allocate(0, "nothing")->data(), nullptr);
}

TEST(AlignedBufferTest, SaysWhatCouldNotBeAllocated) {
  for (size_t bytes : {size_t{1} << 60, SIZE_MAX}) {
    const absl::Status status = AlignedBuffer::Allocate(bytes, "gradients").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_NE(status.message().find("gradients"), absl::string_view::npos);
  }
}

TEST(BFloat16Test, RoundsToNearestEven) {
  EXPECT_EQ(BFloat16::FromFloat(1.0f).bits, 0x3f80);
  EXPECT_EQ(BFloat16::FromFloat(1.0f + 0x1p-8f).bits, 0x3f80);  // a tie, to even
  EXPECT_EQ(BFloat16::FromFloat(1.0f + 3 * 0x1p-8f).bits, 0x3f82);
  EXPECT_EQ(BFloat16::FromFloat(1.0f + 0x1.8p-8f).bits, 0x3f81);
  EXPECT_EQ(BFloat16::FromFloat(-2.5f).ToFloat(), -2.5f);
}

TEST(BFloat16Test, KeepsWhatIsNotFinite) {
  EXPECT_TRUE(std::isinf(BFloat16::FromFloat(std::numeric_limits<float>::max()).ToFloat()));
  EXPECT_TRUE(std::isinf(BFloat16::FromFloat(INFINITY).ToFloat()));
  EXPECT_TRUE(std::isnan(BFloat16::FromFloat(NAN).ToFloat()));
  EXPECT_TRUE(std::isnan(BFloat16::FromFloat(std::bit_cast<float>(0x7f800001u)).ToFloat()));
}

}  // namespace
}  // namespace millrace
