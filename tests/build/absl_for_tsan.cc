// Tells ThreadSanitizer what Abseil's locks order.
//
// The system's Abseil is not built with ThreadSanitizer, and its Mutex is made of futexes, so that
// the sanitizer sees no order between two holders of one Mutex and reports races that are none.
// The definitions below stand before the library's (symbols of the program come first), add
// acquire and release, and pass the call on. Linked into tests and programs by --config=tsan only.

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/synchronization/barrier.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"

// NOLINTBEGIN(bugprone-reserved-identifier): the sanitizer's own names.
extern "C" {
void __tsan_acquire(void* address);
void __tsan_release(void* address);
}
// NOLINTEND(bugprone-reserved-identifier)

namespace {

// The library's own definition of the member function that `ours` stands before.
template <typename Function>
Function Next(Function ours) {
  void* address = nullptr;
  std::memcpy(&address, &ours, sizeof(address));
  Dl_info info;
  void* next = dladdr(address, &info) != 0 && info.dli_sname != nullptr
                   ? dlsym(RTLD_NEXT, info.dli_sname)
                   : nullptr;
  if (next == nullptr) {
    std::fputs("absl_for_tsan: Abseil lacks a function that is wrapped here\n", stderr);
    std::abort();
  }
  std::memcpy(&ours, &next, sizeof(next));
  return ours;
}

void Acquire(const void* address) { __tsan_acquire(const_cast<void*>(address)); }
void Release(const void* address) { __tsan_release(const_cast<void*>(address)); }

}  // namespace

namespace absl {
ABSL_NAMESPACE_BEGIN

#define NEXT(function, ...)                 \
  static const auto next = Next(&function); \
  (this->*next)(__VA_ARGS__)

// Takes the lock, always.
#define WRAP_LOCK(function, parameters, ...) \
  void Mutex::function parameters {          \
    NEXT(Mutex::function, __VA_ARGS__);      \
    Acquire(this);                           \
  }

// Takes the lock and says whether a condition holds.
#define WRAP_LOCK_IF(function, parameters, ...)              \
  bool Mutex::function parameters {                          \
    static const auto next = Next(&Mutex::function);         \
    const bool condition_holds = (this->*next)(__VA_ARGS__); \
    Acquire(this);                                           \
    return condition_holds;                                  \
  }

// Lets go of the lock and has it back on return.
#define WRAP_AWAIT_IF(function, parameters, ...)             \
  bool Mutex::function parameters {                          \
    static const auto next = Next(&Mutex::function);         \
    Release(this);                                           \
    const bool condition_holds = (this->*next)(__VA_ARGS__); \
    Acquire(this);                                           \
    return condition_holds;                                  \
  }

#define WRAP_UNLOCK(function) \
  void Mutex::function() {    \
    Release(this);            \
    NEXT(Mutex::function);    \
  }

#define WRAP_TRY(function)                           \
  bool Mutex::function() {                           \
    static const auto next = Next(&Mutex::function); \
    const bool locked = (this->*next)();             \
    if (locked) Acquire(this);                       \
    return locked;                                   \
  }

WRAP_LOCK(Lock, ())
WRAP_LOCK(ReaderLock, ())
WRAP_UNLOCK(Unlock)
WRAP_UNLOCK(ReaderUnlock)
WRAP_TRY(TryLock)
WRAP_TRY(ReaderTryLock)
WRAP_LOCK(LockWhen, (const Condition& condition), condition)
WRAP_LOCK(ReaderLockWhen, (const Condition& condition), condition)
WRAP_LOCK_IF(LockWhenWithTimeout, (const Condition& condition, Duration timeout), condition,
             timeout)
WRAP_LOCK_IF(LockWhenWithDeadline, (const Condition& condition, Time deadline), condition, deadline)
WRAP_LOCK_IF(ReaderLockWhenWithTimeout, (const Condition& condition, Duration timeout), condition,
             timeout)
WRAP_LOCK_IF(ReaderLockWhenWithDeadline, (const Condition& condition, Time deadline), condition,
             deadline)
WRAP_AWAIT_IF(AwaitWithTimeout, (const Condition& condition, Duration timeout), condition, timeout)
WRAP_AWAIT_IF(AwaitWithDeadline, (const Condition& condition, Time deadline), condition, deadline)

void Mutex::Await(const Condition& condition) {
  Release(this);
  NEXT(Mutex::Await, condition);
  Acquire(this);
}

void CondVar::Wait(Mutex* mutex) {
  Release(mutex);
  NEXT(CondVar::Wait, mutex);
  Acquire(mutex);
}

bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  static const auto next = Next(&CondVar::WaitWithTimeout);
  Release(mutex);
  const bool timed_out = (this->*next)(mutex, timeout);
  Acquire(mutex);
  return timed_out;
}

bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) {
  static const auto next = Next(&CondVar::WaitWithDeadline);
  Release(mutex);
  const bool timed_out = (this->*next)(mutex, deadline);
  Acquire(mutex);
  return timed_out;
}

// HasBeenNotified() is inline and reads a flag that lies behind the mutex.
void Notification::Notify() {
  Release(this);
  Release(reinterpret_cast<const char*>(this) + sizeof(Mutex));
  NEXT(Notification::Notify);
}

void Notification::WaitForNotification() const {
  NEXT(Notification::WaitForNotification);
  Acquire(this);
}

bool Notification::WaitForNotificationWithTimeout(Duration timeout) const {
  static const auto next = Next(&Notification::WaitForNotificationWithTimeout);
  const bool notified = (this->*next)(timeout);
  if (notified) Acquire(this);
  return notified;
}

bool Notification::WaitForNotificationWithDeadline(Time deadline) const {
  static const auto next = Next(&Notification::WaitForNotificationWithDeadline);
  const bool notified = (this->*next)(deadline);
  if (notified) Acquire(this);
  return notified;
}

bool BlockingCounter::DecrementCount() {
  static const auto next = Next(&BlockingCounter::DecrementCount);
  Release(this);
  return (this->*next)();
}

void BlockingCounter::Wait() {
  NEXT(BlockingCounter::Wait);
  Acquire(this);
}

bool Barrier::Block() {
  static const auto next = Next(&Barrier::Block);
  Release(this);
  const bool last = (this->*next)();
  Acquire(this);
  return last;
}

ABSL_NAMESPACE_END
}  // namespace absl
