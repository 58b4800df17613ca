// A config.json: what is taken for a model makes slabs and tables, and is written as what reads the
// same.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/base/json_file.h"
#include "engine/model/families.h"
#include "engine/model/file_tensor.h"
#include "engine/model/rotary_tables.h"
#include "engine/model/slab_layout.h"
#include "nlohmann/json.hpp"
#include "tests/fuzz/fuzz_input.h"

namespace millrace {
namespace {

// More take time only.
constexpr int64_t kMostLayers = 200, kMostHeads = 4096, kMostTable = 1 << 16;

void CheckTables(const ModelSpec& spec) {
  for (const int64_t positions : {int64_t{1}, int64_t{9}, spec.max_positions}) {
    const int64_t elements = RotaryTables(spec) * RotaryTableElements(spec, positions);
    if (elements > kMostTable) continue;
    std::vector<float> tables(static_cast<size_t>(elements));
    FillRotaryTables(spec, positions, positions, tables.data());
    Require(std::all_of(tables.begin(), tables.end(), [](float x) { return std::isfinite(x); }),
            "a rotary table is not finite");
  }
}

}  // namespace
}  // namespace millrace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const absl::StatusOr<nlohmann::json> config =
      ParseJson(absl::string_view(reinterpret_cast<const char*>(data), size));
  if (!config.ok()) return 0;
  std::vector<FieldProblem> problems, notes;
  const absl::StatusOr<ModelSpec> spec = ParseModelConfig(*config, std::nullopt, &problems, &notes);
  Require(spec.ok() == problems.empty(), "problems are listed when there are some");
  if (!spec.ok()) return 0;
  const absl::StatusOr<ModelSpec> again = ParseModelConfig(WriteModelConfig(*spec), std::nullopt);
  Require(again.ok(), again.status().message());
  Require(*again == *spec, "a config that is written reads as another model");
  if (spec->num_layers > kMostLayers || spec->num_heads > kMostHeads) return 0;
  const std::vector<SlabLayout> layouts = MakeSlabLayouts(*spec);
  for (const SlabLayout& layout : layouts) Require(layout.count > 0, "a slab overflows");
  const auto tensors = ListFileTensors(layouts);
  Require(tensors.ok(), tensors.status().message());
  CheckTables(*spec);
  return 0;
}
