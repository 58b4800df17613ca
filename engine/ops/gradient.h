// The norm of whole gradients, on the host.
#ifndef MILLRACE_ENGINE_OPS_GRADIENT_H_
#define MILLRACE_ENGINE_OPS_GRADIENT_H_

#include <cstdint>

#include "engine/base/dtype.h"
#include "engine/base/thread_pool.h"

namespace millrace {

// Σ data[i]², in an order that depends on `count` alone (blocks in f32, their sums in double, in
// order): the same for any number of threads. Infinite or NaN where an element is.
double SumOfSquares(ThreadPool& pool, const void* data, DType dtype, int64_t count);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_OPS_GRADIENT_H_
