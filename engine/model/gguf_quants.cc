#include "engine/model/gguf_quants.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "absl/strings/str_join.h"
#include "engine/base/dtype.h"
#include "engine/base/float16.h"

namespace millrace {
namespace {

static_assert(std::endian::native == std::endian::little);

float HalfAt(const uint8_t* bytes) {
  Float16 half;
  std::memcpy(&half, bytes, sizeof(half));
  return half.ToFloat();
}

// Types of one element a block.

void DecodeF32(const uint8_t* bytes, int64_t blocks, float* values) {
  std::memcpy(values, bytes, static_cast<size_t>(blocks) * sizeof(float));
}
void EncodeF32(const float* values, int64_t blocks, uint8_t* bytes) {
  std::memcpy(bytes, values, static_cast<size_t>(blocks) * sizeof(float));
}

template <typename Narrow>
void DecodeNarrow(const uint8_t* bytes, int64_t blocks, float* values) {
  for (int64_t i = 0; i < blocks; ++i) {
    Narrow narrow;
    std::memcpy(&narrow, bytes + 2 * i, sizeof(narrow));
    values[i] = narrow.ToFloat();
  }
}
template <typename Narrow>
void EncodeNarrow(const float* values, int64_t blocks, uint8_t* bytes) {
  for (int64_t i = 0; i < blocks; ++i) {
    const Narrow narrow = Narrow::FromFloat(values[i]);
    std::memcpy(bytes + 2 * i, &narrow, sizeof(narrow));
  }
}

// Blocks of 32: scale d, in some a minimum m, then the quants; of two quants in a byte the low
// one belongs to the first half of the block

// Values d·(q - 8).
void DecodeBlockQ4_0(const uint8_t* block, float* values) {
  const float d = HalfAt(block);
  for (int i = 0; i < 16; ++i) {
    const int q = block[2 + i];
    values[i] = d * static_cast<float>((q & 15) - 8);
    values[i + 16] = d * static_cast<float>((q >> 4) - 8);
  }
}

// Values d·q + m.
void DecodeBlockQ4_1(const uint8_t* block, float* values) {
  const float d = HalfAt(block), m = HalfAt(block + 2);
  for (int i = 0; i < 16; ++i) {
    const int q = block[4 + i];
    values[i] = d * static_cast<float>(q & 15) + m;
    values[i + 16] = d * static_cast<float>(q >> 4) + m;
  }
}

// The fifth bits of all 32 quants come first, in one word.
void DecodeFive(const uint8_t* bytes, int* quants) {
  uint32_t high;
  std::memcpy(&high, bytes, sizeof(high));
  for (int i = 0; i < 16; ++i) {
    const int q = bytes[4 + i];
    quants[i] = (q & 15) | static_cast<int>((high >> i) & 1u) << 4;
    quants[i + 16] = (q >> 4) | static_cast<int>((high >> (i + 16)) & 1u) << 4;
  }
}

// Values d·(q - 16).
void DecodeBlockQ5_0(const uint8_t* block, float* values) {
  int quants[32];
  DecodeFive(block + 2, quants);
  const float d = HalfAt(block);
  for (int i = 0; i < 32; ++i) values[i] = d * static_cast<float>(quants[i] - 16);
}

// Values d·q + m.
void DecodeBlockQ5_1(const uint8_t* block, float* values) {
  int quants[32];
  DecodeFive(block + 4, quants);
  const float d = HalfAt(block), m = HalfAt(block + 2);
  for (int i = 0; i < 32; ++i) values[i] = d * static_cast<float>(quants[i]) + m;
}

// Values d·q, q a signed byte.
void DecodeBlockQ8_0(const uint8_t* block, float* values) {
  const float d = HalfAt(block);
  for (int i = 0; i < 32; ++i) {
    values[i] = d * static_cast<float>(static_cast<int8_t>(block[2 + i]));
  }
}

// d = max |x| / 127, q = round(x / d), ties away from zero, as ggml's reference does.
void EncodeBlockQ8_0(const float* values, uint8_t* block) {
  float largest = 0.0f;
  for (int i = 0; i < 32; ++i) largest = std::max(largest, std::fabs(values[i]));
  const float d = largest / 127.0f;
  const float inverse = d > 0.0f ? 1.0f / d : 0.0f;
  const Float16 scale = Float16::FromFloat(d);
  std::memcpy(block, &scale, sizeof(scale));
  for (int i = 0; i < 32; ++i) {
    const float q = std::clamp(std::round(values[i] * inverse), -127.0f, 127.0f);
    block[2 + i] = static_cast<uint8_t>(static_cast<int8_t>(std::isnan(q) ? 0.0f : q));
  }
}

// Super-blocks of 256: scales of sub-blocks are themselves quantized

// Scale and minimum, of six bits each, of sub-block `i` of 8 from the 12 bytes that hold them all.
void ScaleAndMinimum(const uint8_t* packed, int i, int& scale, int& minimum) {
  if (i < 4) {
    scale = packed[i] & 63;
    minimum = packed[i + 4] & 63;
  } else {
    scale = (packed[i + 4] & 15) | (packed[i - 4] >> 6) << 4;
    minimum = (packed[i + 4] >> 4) | (packed[i] >> 6) << 4;
  }
}

// d, dmin, 12 bytes of scales, with `kHigh` 32 bytes of fifth bits (bit i of each for sub-block i),
// 128 bytes of quants, two sub-blocks of 32 in each 32. Values d·scale·q - dmin·minimum.
template <bool kHigh>
void DecodeBlockQ4Or5_K(const uint8_t* block, float* values) {
  const float d = HalfAt(block), dmin = HalfAt(block + 2);
  const uint8_t* packed = block + 4;
  const uint8_t* high = block + 16;
  const uint8_t* quants = block + (kHigh ? 48 : 16);
  for (int sub = 0; sub < 8; ++sub) {
    int scale, minimum;
    ScaleAndMinimum(packed, sub, scale, minimum);
    const float step = d * static_cast<float>(scale), base = dmin * static_cast<float>(minimum);
    for (int i = 0; i < 32; ++i) {
      int q = (quants[sub / 2 * 32 + i] >> (sub % 2 * 4)) & 15;
      if (kHigh) q |= ((high[i] >> sub) & 1) << 4;
      values[sub * 32 + i] = step * static_cast<float>(q) - base;
    }
  }
}

// 128 bytes of low four bits, 64 of high two, 16 signed scales (of 16 values each), d.
// Values d·scale·(q - 32).
void DecodeBlockQ6_K(const uint8_t* block, float* values) {
  const uint8_t* low = block;
  const uint8_t* high = block + 128;
  const uint8_t* scales = block + 192;
  const float d = HalfAt(block + 208);
  for (int i = 0; i < 256; ++i) {
    // Each half of the block takes 64 low bytes and 32 high ones.
    const int half = i / 128, place = i % 128;
    const int q4 = (low[half * 64 + place % 64] >> (place / 64 * 4)) & 15;
    const int q2 = (high[half * 32 + place % 32] >> (place / 32 * 2)) & 3;
    const float step = d * static_cast<float>(static_cast<int8_t>(scales[i / 16]));
    values[i] = step * static_cast<float>((q4 | q2 << 4) - 32);
  }
}

template <int kElements, int kBytes, void (*kDecode)(const uint8_t*, float*)>
void DecodeBlocks(const uint8_t* bytes, int64_t blocks, float* values) {
  for (int64_t i = 0; i < blocks; ++i) kDecode(bytes + i * kBytes, values + i * kElements);
}
template <int kElements, int kBytes, void (*kEncode)(const float*, uint8_t*)>
void EncodeBlocks(const float* values, int64_t blocks, uint8_t* bytes) {
  for (int64_t i = 0; i < blocks; ++i) kEncode(values + i * kElements, bytes + i * kBytes);
}

constexpr GgmlTypeInfo kTypes[] = {
    {GgmlType::kF32, "F32", 1, 4, DecodeF32, EncodeF32},
    {GgmlType::kF16, "F16", 1, 2, DecodeNarrow<Float16>, EncodeNarrow<Float16>},
    {GgmlType::kBF16, "BF16", 1, 2, DecodeNarrow<BFloat16>, EncodeNarrow<BFloat16>},
    {GgmlType::kQ8_0, "Q8_0", 32, 34, DecodeBlocks<32, 34, DecodeBlockQ8_0>,
     EncodeBlocks<32, 34, EncodeBlockQ8_0>},
    {GgmlType::kQ4_0, "Q4_0", 32, 18, DecodeBlocks<32, 18, DecodeBlockQ4_0>, nullptr},
    {GgmlType::kQ4_1, "Q4_1", 32, 20, DecodeBlocks<32, 20, DecodeBlockQ4_1>, nullptr},
    {GgmlType::kQ5_0, "Q5_0", 32, 22, DecodeBlocks<32, 22, DecodeBlockQ5_0>, nullptr},
    {GgmlType::kQ5_1, "Q5_1", 32, 24, DecodeBlocks<32, 24, DecodeBlockQ5_1>, nullptr},
    {GgmlType::kQ4_K, "Q4_K", 256, 144, DecodeBlocks<256, 144, DecodeBlockQ4Or5_K<false>>, nullptr},
    {GgmlType::kQ5_K, "Q5_K", 256, 176, DecodeBlocks<256, 176, DecodeBlockQ4Or5_K<true>>, nullptr},
    {GgmlType::kQ6_K, "Q6_K", 256, 210, DecodeBlocks<256, 210, DecodeBlockQ6_K>, nullptr},
};

}  // namespace

const GgmlTypeInfo* FindGgmlType(uint32_t id) {
  for (const GgmlTypeInfo& info : kTypes) {
    if (static_cast<uint32_t>(info.type) == id) return &info;
  }
  return nullptr;
}

const GgmlTypeInfo& InfoOf(GgmlType type) { return *FindGgmlType(static_cast<uint32_t>(type)); }

std::string GgmlTypeNames() {
  return absl::StrJoin(kTypes, ", ", [](std::string* out, const GgmlTypeInfo& info) {
    out->append(info.name.data(), info.name.size());
  });
}

}  // namespace millrace
