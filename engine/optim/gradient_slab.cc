#include "engine/optim/gradient_slab.h"

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace millrace {

void ClearGradientPadding(const SlabLayout& layout, const GradientSlab& gradient) {
  const size_t element = SizeOf(gradient.dtype);
  std::byte* data = static_cast<std::byte*>(gradient.data);
  const auto clear = [&](int64_t begin, int64_t end) {
    std::memset(data + static_cast<size_t>(begin) * element, 0,
                static_cast<size_t>(end - begin) * element);
  };
  int64_t done = 0;
  for (const TensorLayout& tensor : layout.tensors) {
    clear(done, tensor.offset);
    done = tensor.offset + tensor.count();
  }
  clear(done, layout.count);
}

}  // namespace millrace
