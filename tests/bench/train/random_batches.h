// Random tokens to train on.
#ifndef MILLRACE_TESTS_BENCH_TRAIN_RANDOM_BATCHES_H_
#define MILLRACE_TESTS_BENCH_TRAIN_RANDOM_BATCHES_H_

#include <cstdint>
#include <vector>

#include "engine/data/batch.h"
#include "engine/exec/step_runner.h"
#include "engine/model/model_spec.h"
#include "engine/schedule/plan.h"

namespace millrace {

// The micro-batches of a step, in documents of shape.longest_document tokens; each `step` has its
// own.
std::vector<MicroBatch> RandomBatches(const ModelSpec& spec, const StepShape& shape, uint64_t step);

// As the step runner takes them; `batches` outlive them.
std::vector<TokenBatch> Views(const std::vector<MicroBatch>& batches);

}  // namespace millrace

#endif  // MILLRACE_TESTS_BENCH_TRAIN_RANDOM_BATCHES_H_
