// Which rows of a key/value cache belong to which text: each has consecutive ones, first come first
// served.
#ifndef MILLRACE_ENGINE_EXEC_CACHE_ROWS_H_
#define MILLRACE_ENGINE_EXEC_CACHE_ROWS_H_

#include <cstdint>
#include <map>
#include <optional>

namespace millrace {

class CacheRows {
 public:
  explicit CacheRows(int64_t rows) : rows_(rows) {}

  // The first of `count` rows that were free; none where there are not so many in one piece.
  std::optional<int64_t> Take(int64_t count) {
    int64_t begin = 0;
    for (const auto& [taken, size] : taken_) {
      if (taken - begin >= count) break;
      begin = taken + size;
    }
    if (rows_ - begin < count) return std::nullopt;
    taken_[begin] = count;
    return begin;
  }

  // Gives back what Take() began at `begin`.
  void Give(int64_t begin) { taken_.erase(begin); }

 private:
  int64_t rows_;
  std::map<int64_t, int64_t> taken_;  // first row, count
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_EXEC_CACHE_ROWS_H_
