#include "engine/base/aligned_buffer.h"

#include <sys/mman.h>

#include <cerrno>
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
  buffer.size_ = AlignUp(bytes, kSlabAlignment);
  void* address =
      mmap(nullptr, buffer.size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot allocate ", bytes, " bytes for ",
                                                     purpose, ": ", std::strerror(errno)));
  }
  buffer.data_ = static_cast<std::byte*>(address);
  // Only an advice: where it is refused, ordinary pages do.
  if (buffer.size_ >= kHugePage) madvise(address, buffer.size_, MADV_HUGEPAGE);
  return buffer;
}

}  // namespace millrace
