#include "engine/ops/rotary_table.h"

#include <cmath>

namespace millrace {

void FillRotaryTable(int64_t max_positions, int64_t head_dim, double theta, float* table) {
  const int64_t half = head_dim / 2;
  for (int64_t i = 0; i < half; ++i) {
    const double frequency = std::pow(theta, -2.0 * i / head_dim);
    for (int64_t position = 0; position < max_positions; ++position) {
      float* entry = table + (position * half + i) * 2;
      entry[0] = static_cast<float>(std::cos(position * frequency));
      entry[1] = static_cast<float>(std::sin(position * frequency));
    }
  }
}

}  // namespace millrace
