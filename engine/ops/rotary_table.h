// The angles of rotary position embedding (Su et al. 2021, equation 15), and the ways to stretch
// them beyond the positions that a model was trained on.
#ifndef MILLRACE_ENGINE_OPS_ROTARY_TABLE_H_
#define MILLRACE_ENGINE_OPS_ROTARY_TABLE_H_

#include <cstdint>
#include <vector>

namespace millrace {

// With w the rotary width, pair i of a head turns by position · f_i, unscaled f_i = θ^(−2i/w).
enum class RotaryScaling : uint8_t {
  kNone,
  kLinear,    // f_i / factor
  kDynamic,   // θ grows with the sequence where it is longer than original_positions (NTK-aware)
  kYarn,      // Peng et al. 2023: low frequencies divided by factor, high ones kept, a ramp between
  kLlama3,    // the same idea with a ramp over wavelengths (Llama 3.1)
  kLongRope,  // Ding et al. 2024: f_i / short_factors[i], or long_factors[i] for sequences longer
              // than original_positions
};

struct RotaryEmbedding {
  double theta = 10000.0;
  RotaryScaling scaling = RotaryScaling::kNone;
  double factor = 1.0;             // kLinear, kDynamic, kYarn, kLlama3
  int64_t original_positions = 0;  // kDynamic, kYarn, kLlama3, kLongRope: what was trained on
  double beta_fast = 32.0, beta_slow = 1.0;  // kYarn: rotations at the ends of the ramp
  bool truncate = true;                      // kYarn: those ends are whole pairs
  double low_frequency_factor = 1.0, high_frequency_factor = 4.0;  // kLlama3
  std::vector<double> short_factors, long_factors;                 // kLongRope, one a pair
  double attention_factor = 1.0;  // cosines and sines are multiplied by it (kYarn, kLongRope)

  bool operator==(const RotaryEmbedding&) const = default;
};

// f_i of each of the width/2 pairs, in radians a position, as transformers computes them.
// `sequence_length` is what kDynamic and kLongRope go by.
std::vector<double> RotaryFrequencies(const RotaryEmbedding& rotary, int64_t width,
                                      int64_t sequence_length);

// table[positions, width/2, 2]: attention_factor times cosine and sine of each position's angles,
// computed in double.
void FillRotaryTable(const RotaryEmbedding& rotary, int64_t width, int64_t sequence_length,
                     int64_t positions, float* table);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_OPS_ROTARY_TABLE_H_
