// The gradient of a unit as it lies on the host.
#ifndef MILLRACE_ENGINE_OPTIM_GRADIENT_SLAB_H_
#define MILLRACE_ENGINE_OPTIM_GRADIENT_SLAB_H_

#include "engine/base/dtype.h"
#include "engine/model/slab_layout.h"

namespace millrace {

// SlabLayout::count elements with the offsets of the unit's layout, 64-byte aligned. The memory is
// another's.
struct GradientSlab {
  void* data = nullptr;
  DType dtype = DType::kF32;
};

// Zeroes what is not part of a tensor, which must be zero when the norm is taken. Whoever lands
// whole slabs from memory that was used before calls this afterwards.
void ClearGradientPadding(const SlabLayout& layout, const GradientSlab& gradient);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_OPTIM_GRADIENT_SLAB_H_
