// Models that benchmarks train, by name.
#ifndef MILLRACE_TESTS_BENCH_TRAIN_PRESETS_H_
#define MILLRACE_TESTS_BENCH_TRAIN_PRESETS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/model_spec.h"

namespace millrace {

std::vector<std::string> PresetNames();
absl::StatusOr<ModelSpec> PresetModel(const std::string& name);

}  // namespace millrace

#endif  // MILLRACE_TESTS_BENCH_TRAIN_PRESETS_H_
