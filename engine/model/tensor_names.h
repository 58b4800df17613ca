// What each family calls its tensors in a model directory, and how their rows lie there.
#ifndef MILLRACE_ENGINE_MODEL_TENSOR_NAMES_H_
#define MILLRACE_ENGINE_MODEL_TENSOR_NAMES_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/model/slab_layout.h"

namespace millrace {

enum class RowOrder : uint8_t {
  kAsInSlab,
  // One tensor with q, k and v of the first head, then those of the second, and so on.
  kByHead,
};

// The modules behind a role; "{}" is the block's number. The weight is NAME.weight, the bias
// NAME.bias.
struct ModuleNames {
  TensorRole role;
  std::vector<absl::string_view> names;  // q, k, v; gate, up; or one for all
  bool transposed = false;
  RowOrder order = RowOrder::kAsInSlab;
};

// Of a role of weights, for a family of families.h. Those of llama where the family has no names of
// its own.
const ModuleNames& ModuleNamesOf(absl::string_view model_type, TensorRole role);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_MODEL_TENSOR_NAMES_H_
