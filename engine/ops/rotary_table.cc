#include "engine/ops/rotary_table.h"

#include <algorithm>
#include <cmath>

namespace millrace {
namespace {

// The base that dynamic NTK-aware scaling makes of θ: the longest wavelength grows by as much as
// the sequence.
double StretchedTheta(const RotaryEmbedding& rotary, double width, int64_t sequence_length) {
  const auto original = static_cast<double>(rotary.original_positions);
  const double length = std::max(original, static_cast<double>(sequence_length));
  const double stretch = rotary.factor * length / original - (rotary.factor - 1);
  return rotary.theta * std::pow(stretch, width / (width - 2));
}

// YaRN (section 3.2): how much of pair i is interpolated, from 0 up to the pair that turns
// beta_fast times over the original positions to 1 from the one on that turns beta_slow times.
class YarnRamp {
 public:
  YarnRamp(const RotaryEmbedding& rotary, double width) {
    const auto pair_of = [&](double rotations) {
      const auto positions = static_cast<double>(rotary.original_positions);
      return width * std::log(positions / (rotations * 2 * M_PI)) / (2 * std::log(rotary.theta));
    };
    begin_ = pair_of(rotary.beta_fast);
    end_ = pair_of(rotary.beta_slow);
    if (rotary.truncate) {
      begin_ = std::floor(begin_);
      end_ = std::ceil(end_);
    }
    // Bounds and the step's width as Hugging Face has them, with which the models are trained.
    begin_ = std::max(begin_, 0.0);
    end_ = std::min(end_, width - 1);
    if (begin_ == end_) end_ += 0.001;
  }
  double At(int64_t pair) const {
    return std::clamp((static_cast<double>(pair) - begin_) / (end_ - begin_), 0.0, 1.0);
  }

 private:
  double begin_, end_;
};

// How much of a pair Llama 3.1 interpolates, by how often it turns over the original positions.
double Llama3Interpolation(const RotaryEmbedding& rotary, double frequency) {
  const double rotations = static_cast<double>(rotary.original_positions) * frequency / (2 * M_PI);
  if (rotations <= rotary.low_frequency_factor) return 1;
  if (rotations >= rotary.high_frequency_factor) return 0;
  return (rotary.high_frequency_factor - rotations) /
         (rotary.high_frequency_factor - rotary.low_frequency_factor);
}

}  // namespace

std::vector<double> RotaryFrequencies(const RotaryEmbedding& rotary, int64_t width,
                                      int64_t sequence_length) {
  const auto w = static_cast<double>(width);
  std::vector<double> frequencies(width / 2);
  const auto fill = [&](double theta) {
    for (size_t i = 0; i < frequencies.size(); ++i) {
      frequencies[i] = std::pow(theta, -2.0 * static_cast<double>(i) / w);
    }
  };
  // Each becomes itself over factor by the share that is interpolated.
  const auto interpolate = [&](auto share_of) {
    for (size_t i = 0; i < frequencies.size(); ++i) {
      const double share = share_of(i);
      frequencies[i] *= share / rotary.factor + (1 - share);
    }
  };
  fill(rotary.theta);
  switch (rotary.scaling) {
    case RotaryScaling::kNone:
      break;
    case RotaryScaling::kLinear:
      interpolate([](size_t) { return 1.0; });
      break;
    case RotaryScaling::kDynamic:
      fill(StretchedTheta(rotary, w, sequence_length));
      break;
    case RotaryScaling::kYarn: {
      const YarnRamp ramp(rotary, w);
      interpolate([&](size_t i) { return ramp.At(static_cast<int64_t>(i)); });
      break;
    }
    case RotaryScaling::kLlama3:
      interpolate([&](size_t i) { return Llama3Interpolation(rotary, frequencies[i]); });
      break;
    case RotaryScaling::kLongRope: {
      const bool is_long = sequence_length > rotary.original_positions;
      const std::vector<double>& factors = is_long ? rotary.long_factors : rotary.short_factors;
      for (size_t i = 0; i < frequencies.size(); ++i) frequencies[i] /= factors[i];
      break;
    }
  }
  return frequencies;
}

void FillRotaryTable(const RotaryEmbedding& rotary, int64_t width, int64_t sequence_length,
                     int64_t positions, float* table) {
  const std::vector<double> frequencies = RotaryFrequencies(rotary, width, sequence_length);
  for (int64_t position = 0; position < positions; ++position) {
    for (const double frequency : frequencies) {
      const double angle = static_cast<double>(position) * frequency;
      *table++ = static_cast<float>(std::cos(angle) * rotary.attention_factor);
      *table++ = static_cast<float>(std::sin(angle) * rotary.attention_factor);
    }
  }
}

}  // namespace millrace
