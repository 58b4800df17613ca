#include "engine/device/cpu/cpu_device.h"

#include <cstring>
#include <utility>

#include "engine/base/aligned_buffer.h"
#include "engine/base/status_macros.h"

namespace millrace {
namespace {

// Work is done when it is enqueued, so a recorded point is always reached.
class ImmediateEvent final : public Event {
 public:
  absl::Status Synchronize() override { return absl::OkStatus(); }
};

class ImmediateStream final : public Stream {
 public:
  void Record(Event&) override {}
  void Wait(Event&) override {}
  void RunOnHost(std::function<absl::Status()> function) override {
    if (status_.ok()) status_ = function();
  }
  absl::Status Synchronize() override { return status_; }

 private:
  absl::Status status_;
};

class CpuDevice final : public Device {
 public:
  CpuDevice(AlignedBuffer memory, CpuDeviceMode mode) : memory_(std::move(memory)), mode_(mode) {}

  std::string name() const override { return "cpu"; }
  bool unified() const override { return mode_ == CpuDeviceMode::kUnified; }
  std::byte* memory() override { return memory_.data(); }
  size_t memory_bytes() const override { return memory_.size(); }
  std::unique_ptr<Stream> CreateStream(absl::string_view) override {
    return std::make_unique<ImmediateStream>();
  }
  std::unique_ptr<Event> CreateEvent() override { return std::make_unique<ImmediateEvent>(); }
  void CopyToDevice(Stream& stream, void* device, const void* host, size_t bytes) override {
    Copy(stream, device, host, bytes);
  }
  void CopyToHost(Stream& stream, void* host, const void* device, size_t bytes) override {
    Copy(stream, host, device, bytes);
  }

 private:
  static void Copy(Stream& stream, void* to, const void* from, size_t bytes) {
    stream.RunOnHost([=] {
      if (to != from) std::memcpy(to, from, bytes);
      return absl::OkStatus();
    });
  }

  AlignedBuffer memory_;
  CpuDeviceMode mode_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> CreateCpuDevice(size_t budget_bytes, CpuDeviceMode mode) {
  MILLRACE_ASSIGN_OR_RETURN(AlignedBuffer memory,
                            AlignedBuffer::Allocate(budget_bytes, "the device arena"));
  return std::make_unique<CpuDevice>(std::move(memory), mode);
}

}  // namespace millrace
