// A discrete device whose streams do nothing until somebody synchronizes, and then run in a random
// order that only stream order and events restrict: a schedule that lacks a wait shows.
#ifndef MILLRACE_TESTS_ENGINE_EXEC_DEFERRED_DEVICE_H_
#define MILLRACE_TESTS_ENGINE_EXEC_DEFERRED_DEVICE_H_

#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/aligned_buffer.h"
#include "engine/device/device.h"

namespace millrace {

class DeferredDevice final : public Device {
 public:
  struct Options {
    size_t memory_bytes = 0;
    uint32_t seed = 0;
    bool unified = false;
    // false: events order nothing, to show that the order matters.
    bool honor_events = true;
  };

  explicit DeferredDevice(const Options& options)
      : options_(options),
        memory_(*AlignedBuffer::Allocate(options.memory_bytes, "a test device")),
        random_(options.seed) {}

  std::string name() const override { return "deferred"; }
  bool unified() const override { return options_.unified; }
  std::byte* memory() override { return memory_.data(); }
  size_t memory_bytes() const override { return memory_.size(); }

  std::unique_ptr<Stream> CreateStream(absl::string_view) override {
    queues_.push_back(std::make_shared<Queue>());
    return std::make_unique<DeferredStream>(*this, *queues_.back());
  }
  std::unique_ptr<Event> CreateEvent() override { return std::make_unique<DeferredEvent>(*this); }

  void CopyToDevice(Stream& stream, void* device, const void* host, size_t bytes) override {
    Copy(stream, device, host, bytes);
  }
  void CopyToHost(Stream& stream, void* host, const void* device, size_t bytes) override {
    Copy(stream, host, device, bytes);
  }

 private:
  // A recorded point: reached once its stream got there.
  using Point = std::shared_ptr<bool>;
  struct Item {
    std::function<absl::Status()> work;
    Point wait;
    Point record;
  };
  struct Queue {
    std::deque<Item> items;
    absl::Status status;
  };

  class DeferredEvent final : public Event {
   public:
    explicit DeferredEvent(DeferredDevice& device) : device_(device) {}
    absl::Status Synchronize() override {
      device_.RunAll();
      return absl::OkStatus();
    }
    Point point;

   private:
    DeferredDevice& device_;
  };

  class DeferredStream final : public Stream {
   public:
    DeferredStream(DeferredDevice& device, Queue& queue) : device_(device), queue_(queue) {}
    void Record(Event& event) override {
      Point point = std::make_shared<bool>(false);
      static_cast<DeferredEvent&>(event).point = point;
      queue_.items.push_back({.record = point});
    }
    void Wait(Event& event) override {
      if (!device_.options_.honor_events) return;
      queue_.items.push_back({.wait = static_cast<DeferredEvent&>(event).point});
    }
    void RunOnHost(std::function<absl::Status()> work) override {
      queue_.items.push_back({.work = std::move(work)});
    }
    absl::Status Synchronize() override {
      device_.RunAll();
      return queue_.status;
    }

   private:
    DeferredDevice& device_;
    Queue& queue_;
  };

  static void Copy(Stream& stream, void* to, const void* from, size_t bytes) {
    stream.RunOnHost([=] {
      std::memcpy(to, from, bytes);
      return absl::OkStatus();
    });
  }

  void RunAll() {
    while (true) {
      std::vector<Queue*> ready;
      for (const std::shared_ptr<Queue>& queue : queues_) {
        if (queue->items.empty()) continue;
        const Item& next = queue->items.front();
        if (next.wait == nullptr || *next.wait) ready.push_back(queue.get());
      }
      if (ready.empty()) return;
      Queue& queue = *ready[random_() % ready.size()];
      Item item = std::move(queue.items.front());
      queue.items.pop_front();
      if (item.work != nullptr && queue.status.ok()) queue.status = item.work();
      if (item.record != nullptr) *item.record = true;
    }
  }

  Options options_;
  AlignedBuffer memory_;
  std::mt19937 random_;
  std::vector<std::shared_ptr<Queue>> queues_;
};

}  // namespace millrace

#endif  // MILLRACE_TESTS_ENGINE_EXEC_DEFERRED_DEVICE_H_
