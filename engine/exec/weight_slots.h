// Weights on their way to the compute stream of a forward pass: bound where host memory is device
// memory, else through two slots, the next on its way while one is computed with.
//
//   const void* weights = slots.Bring(host, bytes);
//   ... enqueue work on the compute stream that reads them ...
//   slots.Release();
#ifndef MILLRACE_ENGINE_EXEC_WEIGHT_SLOTS_H_
#define MILLRACE_ENGINE_EXEC_WEIGHT_SLOTS_H_

#include <array>
#include <cstddef>
#include <memory>

#include "absl/status/status.h"
#include "engine/device/device.h"

namespace millrace {

class WeightSlots {
 public:
  // `memory`: two slots of `slot_bytes` on the device; not used where it is unified.
  WeightSlots(Device* device, Stream* compute, std::byte* memory, size_t slot_bytes)
      : device_(*device), compute_(*compute), upload_(device->CreateStream("upload")) {
    for (size_t i = 0; i < slots_.size(); ++i) {
      slots_[i] = {memory + i * slot_bytes, device->CreateEvent(), device->CreateEvent()};
    }
  }

  // Address for work that is enqueued on the compute stream before Release(). The host's memory
  // stays as it is until that work is done.
  const void* Bring(const void* host, size_t bytes) {
    if (device_.unified()) return host;
    Slot& slot = slots_[next_];
    upload_->Wait(*slot.free);
    device_.CopyToDevice(*upload_, slot.memory, host, bytes);
    upload_->Record(*slot.filled);
    compute_.Wait(*slot.filled);
    return slot.memory;
  }

  void Release() {
    if (device_.unified()) return;
    compute_.Record(*slots_[next_].free);
    next_ = 1 - next_;
  }

  absl::Status Synchronize() { return upload_->Synchronize(); }

 private:
  struct Slot {
    std::byte* memory = nullptr;
    std::unique_ptr<Event> filled, free;
  };

  Device& device_;
  Stream& compute_;
  std::unique_ptr<Stream> upload_;
  std::array<Slot, 2> slots_;
  size_t next_ = 0;
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_EXEC_WEIGHT_SLOTS_H_
