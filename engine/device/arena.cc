#include "engine/device/arena.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace millrace {

absl::StatusOr<std::byte*> Arena::Place(size_t offset, size_t bytes, absl::string_view purpose) {
  if (bytes > size_bytes_ || offset > size_bytes_ - bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        purpose, ": ", bytes, " bytes at offset ", offset, " end beyond the ", name_, " memory of ",
        size_bytes_, " bytes; raise the budget to at least ", offset + bytes));
  }
  peak_bytes_ = std::max(peak_bytes_, offset + bytes);
  return memory_ + offset;
}

}  // namespace millrace
