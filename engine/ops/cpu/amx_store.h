// Finished results of amx_product.h on their way to c: with bias and addend, and rounded.
#ifndef MILLRACE_ENGINE_OPS_CPU_AMX_STORE_H_
#define MILLRACE_ENGINE_OPS_CPU_AMX_STORE_H_

#include <cstddef>
#include <cstdint>

#include "engine/ops/cpu/amx_packing.h"
#include "engine/ops/cpu/product.h"

namespace millrace {

inline constexpr int64_t kAmxBlockFloats = kAmxBlock * kAmxBlock;

// A strip of results: up to kAmxBlock rows of c in blocks side by side. It is stored a few pieces
// at a time, between the instructions of the strip after it, and row by row: so the processor's
// prefetcher sees what comes, and the stores wait for no memory.
class AmxStore {
 public:
  // Begins the strip of c's rows from `i` and columns [j, end) on, of which nothing is left of the
  // strip before. `blocks`: each kAmxBlockFloats, in quarters of 16 × 16, row by row.
  void Begin(const Product& product, int64_t i, int64_t j, int64_t end, const float* blocks);

  // Stores the next `count` pieces, at most kAmxBlock columns of a row each.
  void Step(int64_t count);
  // Stores all that is left of the strip.
  void Finish() { Step(rows_left_ * pieces_); }
  // After the last strip: other threads see all that was stored.
  void Flush();

 private:
  template <bool kF32, bool kAddend>
  void StorePieces(int64_t begin, int64_t end) const;

  const Product* product_ = nullptr;
  const float* row_ = nullptr;  // of the first block
  std::byte* c_ = nullptr;      // the row
  const std::byte* addend_ = nullptr;
  const BFloat16* bias_ = nullptr;
  bool past_caches_ = false;
  int64_t row_index_ = 0, rows_left_ = 0;
  int64_t columns_ = 0, pieces_ = 0;  // of a row
  int64_t piece_ = 0;
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_OPS_CPU_AMX_STORE_H_
