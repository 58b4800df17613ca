#include "engine/model/rotary_tables.h"

#include "engine/ops/rotary_table.h"

namespace millrace {

int64_t RotaryTableElements(const ModelSpec& spec, int64_t positions) {
  return positions * spec.rotary_width;
}

int RotaryTables(const ModelSpec& spec) {
  if (spec.position != PositionKind::kRotary) return 0;
  return spec.window_rotary.has_value() ? 2 : 1;
}

void FillRotaryTables(const ModelSpec& spec, int64_t sequence_length, int64_t positions,
                      float* tables) {
  if (RotaryTables(spec) == 0) return;
  FillRotaryTable(spec.rotary, spec.rotary_width, sequence_length, positions, tables);
  if (!spec.window_rotary.has_value()) return;
  FillRotaryTable(*spec.window_rotary, spec.rotary_width, sequence_length, positions,
                  tables + RotaryTableElements(spec, positions));
}

}  // namespace millrace
