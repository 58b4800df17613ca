// A matrix product to be computed.
#ifndef MILLRACE_ENGINE_OPS_CPU_PRODUCT_H_
#define MILLRACE_ENGINE_OPS_CPU_PRODUCT_H_

#include <cstdint>

#include "engine/base/dtype.h"

namespace millrace {

// c[m, n] = op(a)[m, k] · op(b)[k, n] + bias[n] + addend[m, n]. Strides are in elements from one
// row of the matrix in memory to the next; sums are f32.
struct Product {
  int64_t m, n, k;
  DType type;  // of a, b and bias
  const void* a;
  int64_t a_stride;
  bool a_transposed = false;  // `a` lies in memory as [k, m]
  const void* b;
  int64_t b_stride;
  bool b_transposed = false;  // `b` lies in memory as [n, k]
  void* c;
  int64_t c_stride;
  DType c_type;
  const void* bias = nullptr;
  const void* addend = nullptr;  // of c's type and stride; may be c
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_OPS_CPU_PRODUCT_H_
