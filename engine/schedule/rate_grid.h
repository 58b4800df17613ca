// A rate known at the points of a grid of sizes.
//
//   RateGrid flops({{64, 1024}, {256, 4096}}, {1e11, 3e11, 2e11, 4e11});   // tokens, width
//   flops.At({300, 1000});
#ifndef MILLRACE_ENGINE_SCHEDULE_RATE_GRID_H_
#define MILLRACE_ENGINE_SCHEDULE_RATE_GRID_H_

#include <cstdint>
#include <initializer_list>
#include <vector>

namespace millrace {

class RateGrid {
 public:
  RateGrid() = default;
  explicit RateGrid(double constant) : values_{constant} {}
  // `values` are positive, row major over `axes`, whose sizes rise.
  RateGrid(std::vector<std::vector<int64_t>> axes, std::vector<double> values);

  // Linear in the logarithms of sizes and rates between points; that of the edge beyond. One size
  // an axis; a constant takes any.
  double At(std::initializer_list<double> sizes) const;

  const std::vector<std::vector<int64_t>>& axes() const { return axes_; }
  const std::vector<double>& values() const { return values_; }

 private:
  std::vector<std::vector<int64_t>> axes_;
  std::vector<double> values_;
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_SCHEDULE_RATE_GRID_H_
