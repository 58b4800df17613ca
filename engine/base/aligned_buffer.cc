#include "engine/base/aligned_buffer.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace millrace {
namespace {
constexpr size_t kHugePage = size_t{2} << 20;
}  // namespace

AlignedBuffer::AlignedBuffer(AlignedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

AlignedBuffer& AlignedBuffer::operator=(AlignedBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

AlignedBuffer::~AlignedBuffer() {
  if (data_ != nullptr) munmap(data_, size_);
}

absl::StatusOr<AlignedBuffer> AlignedBuffer::Allocate(size_t bytes, absl::string_view purpose) {
  AlignedBuffer buffer;
  if (bytes == 0) return buffer;
  const size_t size = AlignUp(bytes, kSlabAlignment);
  const bool large = size >= kHugePage;
  // With room to begin where a huge page can.
  const size_t reserved = large ? size + kHugePage : size;
  void* address = size < bytes || reserved < size ? MAP_FAILED
                                                  : mmap(nullptr, reserved, PROT_READ | PROT_WRITE,
                                                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot allocate ", bytes, " bytes for ",
                                                     purpose, ": ", std::strerror(ENOMEM)));
  }
  std::byte* const begin = static_cast<std::byte*>(address);
  buffer.data_ = begin;
  buffer.size_ = size;
  if (!large) return buffer;
  const size_t before =
      AlignUp(reinterpret_cast<uintptr_t>(begin), kHugePage) - reinterpret_cast<uintptr_t>(begin);
  buffer.data_ += before;
  if (before > 0) munmap(begin, before);
  if (before < kHugePage) munmap(buffer.data_ + size, kHugePage - before);
  // Only an advice: where it is refused, ordinary pages do.
  madvise(buffer.data_, size, MADV_HUGEPAGE);
  return buffer;
}

}  // namespace millrace
