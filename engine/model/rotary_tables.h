// The tables of cosines and sines that a model's blocks read: none where positions are learned,
// one, or two where layers with a window rotate otherwise.
#ifndef MILLRACE_ENGINE_MODEL_ROTARY_TABLES_H_
#define MILLRACE_ENGINE_MODEL_ROTARY_TABLES_H_

#include <cstdint>

#include "engine/model/model_spec.h"

namespace millrace {

// Elements of one table, [positions, rotary_width/2, 2], and how many tables there are.
int64_t RotaryTableElements(const ModelSpec& spec, int64_t positions);
int RotaryTables(const ModelSpec& spec);

// All tables, one after the other: first the one of PassContext::rotary_table, then that of
// PassContext::window_rotary_table. `sequence_length` as in FillRotaryTable.
void FillRotaryTables(const ModelSpec& spec, int64_t sequence_length, int64_t positions,
                      float* tables);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_MODEL_ROTARY_TABLES_H_
