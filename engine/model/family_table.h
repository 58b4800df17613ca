// The table of model families: for each, the keys of its config.json, what they mean to a
// ModelSpec, their defaults (those of the family's class in transformers) and limits. A new family
// is a new row here, and its tensors' names in tensor_names.cc.
#ifndef MILLRACE_ENGINE_MODEL_FAMILY_TABLE_H_
#define MILLRACE_ENGINE_MODEL_FAMILY_TABLE_H_

#include <vector>

#include "engine/model/config_keys.h"

namespace millrace {

const std::vector<FamilyKeys>& FamilyTable();

}  // namespace millrace

#endif  // MILLRACE_ENGINE_MODEL_FAMILY_TABLE_H_
