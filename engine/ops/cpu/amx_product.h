// Matrix products in bf16 with the tiles of Intel's AMX, on the calling thread.
//
// Both operands are packed into 1 KiB tiles, 16 rows of 64 bytes: of op(a) 16 rows by 32 columns of
// k, of op(b) 16 pairs of k by 16 columns, a pair's two elements side by side. One operand, or as
// much of it as fits, stays packed in the second-level cache; the other streams by in panels of 32
// rows, the next one packed while the last one is multiplied. 32 × 32 results are summed in four
// tile registers. The order of a sum depends on k alone.
#ifndef MILLRACE_ENGINE_OPS_CPU_AMX_PRODUCT_H_
#define MILLRACE_ENGINE_OPS_CPU_AMX_PRODUCT_H_

#include <cstddef>
#include <cstdint>

#include "engine/ops/cpu/product.h"

namespace millrace {

// True where CPU and operating system have AMX for bf16; asks the system for its use.
bool AmxAvailable();

// True for products that RunAmxProduct computes faster than others do: bf16, large enough to be
// worth the packing, and with sums that fit the caches.
bool AmxSuits(const Product& product);

// Scratch memory that `product` needs; never more than kAmxScratchBytes.
size_t AmxScratchBytes(const Product& product);
inline constexpr size_t kAmxScratchBytes = 4 << 20;

// `scratch` is 64-byte aligned, of AmxScratchBytes(product) bytes.
void RunAmxProduct(const Product& product, std::byte* scratch);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_OPS_CPU_AMX_PRODUCT_H_
