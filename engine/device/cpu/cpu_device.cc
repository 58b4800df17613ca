#include "engine/device/cpu/cpu_device.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/aligned_buffer.h"
#include "engine/base/status_macros.h"
#include "engine/device/cpu/link.h"
#include "engine/device/cpu/thread_stream.h"

namespace millrace {
namespace {

// Work is done when it is enqueued, so a recorded point is always reached.
class ImmediateEvent final : public Event {
 public:
  absl::Status Synchronize() override { return status; }
  absl::Status status;  // of the stream at that point
};

class ImmediateStream final : public Stream {
 public:
  void Record(Event& event) override { static_cast<ImmediateEvent&>(event).status = status_; }
  void Wait(Event& event) override {
    status_.Update(static_cast<const ImmediateEvent&>(event).status);
  }
  void RunOnHost(std::function<absl::Status()> function) override {
    if (status_.ok()) status_ = RunWork(function);
  }
  absl::Status Synchronize() override { return status_; }

 private:
  absl::Status status_;
};

class UnifiedCpuDevice final : public Device {
 public:
  explicit UnifiedCpuDevice(AlignedBuffer memory) : memory_(std::move(memory)) {}

  std::string name() const override { return "cpu"; }
  bool unified() const override { return true; }
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
};

class DiscreteCpuDevice final : public Device {
 public:
  DiscreteCpuDevice(AlignedBuffer memory, const CpuDeviceOptions& options)
      : memory_(std::move(memory)),
        clock_(*options.clock),
        up_(options.link_bytes_per_second, absl::ToInt64Nanoseconds(options.link_latency)),
        down_(options.link_bytes_per_second, absl::ToInt64Nanoseconds(options.link_latency)) {}

  std::string name() const override { return "cpu-discrete"; }
  bool unified() const override { return false; }
  std::byte* memory() override { return memory_.data(); }
  size_t memory_bytes() const override { return memory_.size(); }
  std::unique_ptr<Stream> CreateStream(absl::string_view name) override {
    return std::make_unique<ThreadStream>(name, clock_);
  }
  std::unique_ptr<Event> CreateEvent() override { return std::make_unique<ThreadEvent>(); }
  void CopyToDevice(Stream& stream, void* device, const void* host, size_t bytes) override {
    static_cast<ThreadStream&>(stream).Copy(up_, device, host, bytes);
  }
  void CopyToHost(Stream& stream, void* host, const void* device, size_t bytes) override {
    static_cast<ThreadStream&>(stream).Copy(down_, host, device, bytes);
  }

 private:
  AlignedBuffer memory_;
  LinkClock& clock_;
  Link up_, down_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> CreateCpuDevice(const CpuDeviceOptions& options) {
  MILLRACE_ASSIGN_OR_RETURN(AlignedBuffer memory,
                            AlignedBuffer::Allocate(options.budget_bytes, "the device arena"));
  if (options.mode == CpuDeviceMode::kUnified) {
    return std::make_unique<UnifiedCpuDevice>(std::move(memory));
  }
  if (!std::isfinite(options.link_bytes_per_second) || options.link_bytes_per_second < 0 ||
      options.link_latency < absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a link of ", options.link_bytes_per_second, " bytes/s and latency ",
        absl::FormatDuration(options.link_latency), " cannot be; neither may be negative"));
  }
  return std::make_unique<DiscreteCpuDevice>(std::move(memory), options);
}

}  // namespace millrace
