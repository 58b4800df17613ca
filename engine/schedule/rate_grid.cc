#include "engine/schedule/rate_grid.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace millrace {

RateGrid::RateGrid(std::vector<std::vector<int64_t>> axes, std::vector<double> values)
    : axes_(std::move(axes)), values_(std::move(values)) {}

double RateGrid::At(std::initializer_list<double> sizes) const {
  if (values_.empty()) return 0;
  // Corners of the cell around `sizes`, each with its weight; one axis after the other.
  std::vector<std::pair<size_t, double>> corners = {{0, 1.0}};
  const double* size = sizes.begin();
  for (const std::vector<int64_t>& axis : axes_) {
    const double at =
        std::clamp(*size++, static_cast<double>(axis.front()), static_cast<double>(axis.back()));
    size_t low = 0;
    while (low + 2 < axis.size() && static_cast<double>(axis[low + 1]) <= at) ++low;
    const size_t high = std::min(low + 1, axis.size() - 1);
    const double span = std::log(static_cast<double>(axis[high]) / static_cast<double>(axis[low]));
    const double share = span > 0 ? std::log(at / static_cast<double>(axis[low])) / span : 0;
    std::vector<std::pair<size_t, double>> next;
    for (const auto& [index, weight] : corners) {
      if (share < 1) next.emplace_back(index * axis.size() + low, weight * (1 - share));
      if (share > 0) next.emplace_back(index * axis.size() + high, weight * share);
    }
    corners = std::move(next);
  }
  double logarithm = 0;
  for (const auto& [index, weight] : corners) logarithm += weight * std::log(values_[index]);
  return std::exp(logarithm);
}

}  // namespace millrace
