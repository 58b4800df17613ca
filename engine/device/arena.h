// Memory of a fixed size from which buffers are taken at the places that a schedule gave them.
//
//   Arena arena("device", device.memory(), device.memory_bytes());
//   MILLRACE_ASSIGN_OR_RETURN(std::byte* slot, arena.Place(offset, bytes, "weight slot 1"));
//   arena.peak_bytes();   // what has been worked in so far
//
// The arena decides nothing: who lies where is the schedule's business. It refuses what does not
// fit, and measures. Threads: one at a time.
#ifndef MILLRACE_ENGINE_DEVICE_ARENA_H_
#define MILLRACE_ENGINE_DEVICE_ARENA_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace millrace {

class Arena {
 public:
  // Does not own [memory, memory + bytes). `name` is for errors: "device", "host".
  Arena(absl::string_view name, std::byte* memory, size_t bytes)
      : name_(name), memory_(memory), size_bytes_(bytes) {}

  // Address of the buffer at [offset, offset + bytes). RESOURCE_EXHAUSTED, naming `purpose`, when
  // it ends beyond the arena.
  absl::StatusOr<std::byte*> Place(size_t offset, size_t bytes, absl::string_view purpose);

  size_t size_bytes() const { return size_bytes_; }
  // End of the highest buffer placed so far.
  size_t peak_bytes() const { return peak_bytes_; }

 private:
  std::string name_;
  std::byte* memory_;
  size_t size_bytes_;
  size_t peak_bytes_ = 0;
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_DEVICE_ARENA_H_
