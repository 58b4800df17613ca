// A config.json: what is taken for a model makes slabs, and is written as what reads the same.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/model/families.h"
#include "engine/model/file_tensor.h"
#include "engine/model/slab_layout.h"
#include "nlohmann/json.hpp"
#include "tests/fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  constexpr int64_t kMostLayers = 1000;  // more take time only
  const nlohmann::json config =
      nlohmann::json::parse(data, data + size, nullptr, /*allow_exceptions=*/false);
  if (config.is_discarded()) return 0;
  const absl::StatusOr<ModelSpec> spec = ParseModelConfig(config, std::nullopt);
  if (!spec.ok()) return 0;
  const absl::StatusOr<ModelSpec> again = ParseModelConfig(WriteModelConfig(*spec), std::nullopt);
  Require(again.ok(), again.status().message());
  Require(*again == *spec, "a config that is written reads as another model");
  if (spec->num_layers > kMostLayers) return 0;
  const std::vector<SlabLayout> layouts = MakeSlabLayouts(*spec);
  for (const SlabLayout& layout : layouts) Require(layout.count > 0, "a slab overflows");
  const auto tensors = ListFileTensors(layouts);
  Require(tensors.ok(), tensors.status().message());
  return 0;
}
