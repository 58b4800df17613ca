// Working memory that threads borrow, so that each has its own and none is made twice.
#ifndef MILLRACE_ENGINE_DATA_SCRATCH_POOL_H_
#define MILLRACE_ENGINE_DATA_SCRATCH_POOL_H_

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace millrace {

// Holds one T for each thread that has borrowed at the same time as others. Any thread may call.
template <typename T>
class ScratchPool {
 public:
  // Calls use(scratch) with a T that nobody else has meanwhile.
  template <typename Use>
  void With(Use use) {
    std::unique_ptr<T> scratch = Take();
    use(*scratch);
    std::lock_guard<std::mutex> lock(mutex_);
    free_.push_back(std::move(scratch));
  }

 private:
  std::unique_ptr<T> Take() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (free_.empty()) return std::make_unique<T>();
    std::unique_ptr<T> scratch = std::move(free_.back());
    free_.pop_back();
    return scratch;
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<T>> free_;
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_DATA_SCRATCH_POOL_H_
