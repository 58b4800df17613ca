#include "engine/ops/rotary_table.h"

#include <cmath>

namespace millrace {

void FillRotaryTable(const RotaryEmbedding& rotary, int64_t width, int64_t sequence_length,
                     int64_t positions, float* table) {
  const int64_t half = width / 2;
  for (int64_t i = 0; i < half; ++i) {
    const double frequency =
        std::pow(rotary.theta, -2.0 * static_cast<double>(i) / static_cast<double>(width));
    for (int64_t position = 0; position < positions; ++position) {
      const double angle = static_cast<double>(position) * frequency;
      float* pair = table + 2 * (position * half + i);
      pair[0] = static_cast<float>(std::cos(angle));
      pair[1] = static_cast<float>(std::sin(angle));
    }
  }
}

}  // namespace millrace
