// A compute device as the engine sees it: memory of fixed size, in-order asynchronous streams, and
// events that order work between them. The semantics are CUDA's, so that a CUDA device is one
// more implementation and no change anywhere else.
//
//   std::unique_ptr<Stream> compute = device.CreateStream("compute");
//   std::unique_ptr<Stream> upload = device.CreateStream("upload");
//   std::unique_ptr<Event> arrived = device.CreateEvent();
//   device.CopyToDevice(*upload, slot, host_slab, bytes);
//   upload->Record(*arrived);
//   compute->Wait(*arrived);   // the device waits, the host goes on
//   ... enqueue ops on compute ...
//   MILLRACE_RETURN_IF_ERROR(compute->Synchronize());
//
// Threads: a stream is used by one host thread at a time; different streams by different threads.
#ifndef MILLRACE_ENGINE_DEVICE_DEVICE_H_
#define MILLRACE_ENGINE_DEVICE_DEVICE_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace millrace {

// A point in a stream's work. Recorded again, it stands for the newer point.
class Event {
 public:
  virtual ~Event() = default;
  // Blocks the host until the point is reached; at once when never recorded. The error that the
  // stream had there, if any.
  virtual absl::Status Synchronize() = 0;
};

// A queue of work that runs in order. An error in one piece of work (a status that is not OK, or an
// exception) makes the stream skip all that follows; Synchronize() reports it, again each time.
// Events of skipped work are reached at once, so that nobody waits for ever, and hand the error to
// the streams that wait for them.
class Stream {
 public:
  // Drops what has not begun and waits for what has; events of dropped work carry CANCELLED.
  virtual ~Stream() = default;

  // `event` is reached when everything enqueued so far is done.
  virtual void Record(Event& event) = 0;
  // Work enqueued after this starts only once `event` (as recorded by now) is reached.
  virtual void Wait(Event& event) = 0;
  // Runs `function` on the host in stream order.
  virtual void RunOnHost(std::function<absl::Status()> function) = 0;
  // Blocks the host until everything enqueued is done.
  virtual absl::Status Synchronize() = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  // `cpu`, `cuda:0`, …
  virtual std::string name() const = 0;
  // Host memory is device memory: an upload binds a pointer and copies nothing.
  virtual bool unified() const = 0;

  // The device memory of this engine, one block of the budget's size; nullptr in unified mode when
  // the budget is 0.
  virtual std::byte* memory() = 0;
  virtual size_t memory_bytes() const = 0;

  // `name` shows in traces.
  virtual std::unique_ptr<Stream> CreateStream(absl::string_view name) = 0;
  virtual std::unique_ptr<Event> CreateEvent() = 0;

  // Asynchronous copies; both sides must stay untouched until the stream is past them.
  virtual void CopyToDevice(Stream& stream, void* device, const void* host, size_t bytes) = 0;
  virtual void CopyToHost(Stream& stream, void* host, const void* device, size_t bytes) = 0;
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_DEVICE_DEVICE_H_
