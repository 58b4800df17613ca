#include "engine/model/normal_fill.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace millrace {
namespace {

// Philox blocks made at a time; a block is four words, which become four numbers.
constexpr int64_t kBlocks = 64;

// Words of Philox4x32-10 (engine/base/random.h) for counters first_block + [0, kBlocks).
__attribute__((always_inline)) inline void PhiloxBlocks(uint64_t key, uint64_t stream,
                                                        uint64_t first_block,
                                                        uint32_t (&c)[4][kBlocks]) {
  for (int64_t i = 0; i < kBlocks; ++i) {
    const uint64_t counter = first_block + static_cast<uint64_t>(i);
    c[0][i] = static_cast<uint32_t>(counter);
    c[1][i] = static_cast<uint32_t>(counter >> 32);
    c[2][i] = static_cast<uint32_t>(stream);
    c[3][i] = static_cast<uint32_t>(stream >> 32);
  }
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    for (int64_t i = 0; i < kBlocks; ++i) {
      const uint64_t p0 = uint64_t{0xD2511F53u} * c[0][i], p1 = uint64_t{0xCD9E8D57u} * c[2][i];
      const uint32_t c1 = c[1][i], c3 = c[3][i];
      c[0][i] = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
      c[1][i] = static_cast<uint32_t>(p1);
      c[2][i] = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
      c[3][i] = static_cast<uint32_t>(p0);
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
}

// −2·ln(u) for u = (word / 2^8 + 1) / 2^24, in (0, 1]. ln by Cephes' polynomial (logf.c).
__attribute__((always_inline)) inline float MinusTwoLog(uint32_t word) {
  const float u = static_cast<float>(static_cast<int32_t>(word >> 8) + 1) * 0x1p-24f;
  // u = 2^exponent · m with m in [√½, √2).
  const int32_t bits = std::bit_cast<int32_t>(u) - 0x3f3504f3;
  const float exponent = static_cast<float>(bits >> 23);
  const float m = std::bit_cast<float>((bits & 0x007fffff) + 0x3f3504f3) - 1.0f;
  float p = 7.0376836292e-2f;
  p = p * m - 1.1514610310e-1f;
  p = p * m + 1.1676998740e-1f;
  p = p * m - 1.2420140846e-1f;
  p = p * m + 1.4249322787e-1f;
  p = p * m - 1.6668057665e-1f;
  p = p * m + 2.0000714765e-1f;
  p = p * m - 2.4999993993e-1f;
  p = p * m + 3.3333331174e-1f;
  const float m2 = m * m;
  const float log = m + (p * m * m2 - 0.5f * m2) + exponent * 0.693147180559945f;
  return std::max(-2.0f * log, 0.0f);
}

// Cosine and sine of 2π · word / 2^32. The quarter turn nearest to the angle is taken off exactly,
// in integers; the rest, within ±π/4, goes through Cephes' polynomials (sinf.c).
__attribute__((always_inline)) inline void CosSinTurn(uint32_t word, float& cosine, float& sine) {
  const uint32_t quarter = (word + 0x20000000u) >> 30;
  const int32_t rest = static_cast<int32_t>(word - (quarter << 30));
  const float x = static_cast<float>(rest) * 1.4629180792671596e-9f;  // 2π / 2^32
  const float x2 = x * x;
  const float s =
      ((-1.9515295891e-4f * x2 + 8.3321608736e-3f) * x2 - 1.6666654611e-1f) * x2 * x + x;
  const float c =
      ((2.443315711809948e-5f * x2 - 1.388731625493765e-3f) * x2 + 4.166664568298827e-2f) * x2 *
          x2 -
      0.5f * x2 + 1.0f;
  const bool swapped = (quarter & 1u) != 0;
  const uint32_t cosine_sign = ((quarter + 1u) & 2u) << 30, sine_sign = (quarter & 2u) << 30;
  cosine = std::bit_cast<float>(std::bit_cast<uint32_t>(swapped ? s : c) ^ cosine_sign);
  sine = std::bit_cast<float>(std::bit_cast<uint32_t>(swapped ? c : s) ^ sine_sign);
}

// Numbers 4·first_block + [0, 4·kBlocks). Box-Muller on words (0, 1) and (2, 3) of each block.
__attribute__((always_inline)) inline void NormalBlocks(uint64_t seed, uint64_t stream,
                                                        uint64_t first_block, float deviation,
                                                        float* out) {
  uint32_t words[4][kBlocks];
  PhiloxBlocks(seed, stream, first_block, words);
  for (int64_t pair = 0; pair < 2; ++pair) {
    float cosines[kBlocks], sines[kBlocks];
    for (int64_t i = 0; i < kBlocks; ++i) {
      const float radius = __builtin_sqrtf(MinusTwoLog(words[2 * pair][i])) * deviation;
      float cosine, sine;
      CosSinTurn(words[2 * pair + 1][i], cosine, sine);
      cosines[i] = radius * cosine;
      sines[i] = radius * sine;
    }
    for (int64_t i = 0; i < kBlocks; ++i) {
      out[4 * i + 2 * pair] = cosines[i];
      out[4 * i + 2 * pair + 1] = sines[i];
    }
  }
}

using BlockFunction = void (*)(uint64_t, uint64_t, uint64_t, float, float*);

void NormalBlocksPortable(uint64_t seed, uint64_t stream, uint64_t block, float deviation,
                          float* out) {
  NormalBlocks(seed, stream, block, deviation, out);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) void NormalBlocksAvx2(uint64_t seed, uint64_t stream,
                                                      uint64_t block, float deviation, float* out) {
  NormalBlocks(seed, stream, block, deviation, out);
}
__attribute__((target("avx512f,avx512dq,avx512vl,avx512bw"))) void NormalBlocksAvx512(
    uint64_t seed, uint64_t stream, uint64_t block, float deviation, float* out) {
  NormalBlocks(seed, stream, block, deviation, out);
}
#endif

BlockFunction ChooseBlockFunction() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw")) {
    return NormalBlocksAvx512;
  }
  if (__builtin_cpu_supports("avx2")) return NormalBlocksAvx2;
#endif
  return NormalBlocksPortable;
}

}  // namespace

void FillNormal(uint64_t seed, uint64_t stream, uint64_t first_index, float deviation,
                absl::Span<float> out) {
  static const BlockFunction blocks = ChooseBlockFunction();
  constexpr uint64_t kNumbers = 4 * kBlocks;
  uint64_t index = first_index;
  while (!out.empty()) {
    const uint64_t skip = index % 4;
    const uint64_t count = std::min<uint64_t>(out.size(), kNumbers - skip);
    if (skip == 0 && count == kNumbers) {
      blocks(seed, stream, index / 4, deviation, out.data());
    } else {
      float numbers[kNumbers];
      blocks(seed, stream, index / 4, deviation, numbers);
      std::memcpy(out.data(), numbers + skip, count * sizeof(float));
    }
    index += count;
    out.remove_prefix(count);
  }
}

}  // namespace millrace
