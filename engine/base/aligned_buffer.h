// Memory of the engine's own: page aligned, zeroed, given back to the system at once when freed.
//
//   MILLRACE_ASSIGN_OR_RETURN(AlignedBuffer buffer, AlignedBuffer::Allocate(bytes, "gradients"));
#ifndef MILLRACE_ENGINE_BASE_ALIGNED_BUFFER_H_
#define MILLRACE_ENGINE_BASE_ALIGNED_BUFFER_H_

#include <cstddef>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace millrace {

inline constexpr size_t kSlabAlignment = 4096;

// Smallest multiple of `alignment` (a power of two) that is at least `value`.
constexpr size_t AlignUp(size_t value, size_t alignment) {
  return (value + alignment - 1) & ~(alignment - 1);
}

// Owns one anonymous mapping. Movable, not copyable. An empty buffer has data() == nullptr.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  AlignedBuffer(AlignedBuffer&& other) noexcept;
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept;
  ~AlignedBuffer();

  // Zeroed; pages are taken when first touched (so they lie near the thread that does), huge pages
  // where the system grants them: a buffer of at least one begins at the boundary of one. Whole
  // pages, so that a device can pin them.
  // `purpose` names the memory in the error (RESOURCE_EXHAUSTED).
  static absl::StatusOr<AlignedBuffer> Allocate(size_t bytes, absl::string_view purpose);

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }

  template <typename T>
  T* as() {
    return reinterpret_cast<T*>(data_);
  }
  template <typename T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_);
  }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_BASE_ALIGNED_BUFFER_H_
