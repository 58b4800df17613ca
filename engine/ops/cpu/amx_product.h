// Matrix products in bf16 with the tiles of Intel's AMX, on the calling thread.
//
// Tiles are 1 KiB, 16 rows of 64 bytes: of op(a) 16 rows by 32 columns of k, of op(b) 16 pairs of k
// by 16 columns, a pair's two elements side by side. Columns of op(b) are packed into tiles, as
// many as stay in the second-level cache, and multiplied with one panel of 32 rows of op(a) after
// the other; those are loaded from where they lie, or packed once where `a` is transposed. 32 × 32
// results are summed in four tile registers. A sum's terms are added in the order of k, whatever
// the sizes.
#ifndef MILLRACE_ENGINE_OPS_CPU_AMX_PRODUCT_H_
#define MILLRACE_ENGINE_OPS_CPU_AMX_PRODUCT_H_

#include <cstddef>
#include <cstdint>

#include "engine/ops/cpu/product.h"

namespace millrace {

// True for products that RunAmxProduct computes faster than others do: bf16, and large enough
// to be worth the packing.
bool AmxSuits(const Product& product);

// Scratch memory that `product` needs; never more than kAmxScratchBytes.
size_t AmxScratchBytes(const Product& product);
inline constexpr size_t kAmxScratchBytes = 4736 << 10;

// `scratch` is 64-byte aligned, of AmxScratchBytes(product) bytes.
void RunAmxProduct(const Product& product, std::byte* scratch);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_OPS_CPU_AMX_PRODUCT_H_
