// Streams tensors from files into slabs: in the order of the files, a bounded piece at a time, by
// as many threads as there are.
#ifndef MILLRACE_ENGINE_MODEL_WEIGHT_READER_H_
#define MILLRACE_ENGINE_MODEL_WEIGHT_READER_H_

#include <cstdint>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/base/dtype.h"
#include "engine/base/thread_pool.h"
#include "engine/model/file_tensor.h"
#include "engine/model/stored_tensor.h"

namespace millrace {

// Takes elements [offset, offset + values.size()) of the slab of `unit`.
using SlabSink =
    absl::FunctionRef<absl::Status(int64_t unit, int64_t offset, absl::Span<const float> values)>;
// Gives the memory where elements [offset, offset + count) of the slab of `unit` belong.
using BFloat16Place = absl::FunctionRef<absl::StatusOr<absl::Span<BFloat16>>(
    int64_t unit, int64_t offset, int64_t count)>;

struct ReadOptions {
  // Read on all of its threads, which call the sink and the place at once, for different elements.
  // nullptr: on the caller's only.
  ThreadPool* threads = nullptr;
  // Where what files hold as bf16 is read to, unconverted and past the sink.
  std::optional<BFloat16Place> bf16;
};

// A tensor of the layouts and the one of a file that is it; shapes fit.
struct TensorSource {
  const FileTensor* tensor = nullptr;
  StoredTensor stored;
};

// Gives every element of `sources` to the sink or its place once. The first error ends it.
absl::Status ReadTensors(absl::Span<const TensorSource> sources, SlabSink sink,
                         const ReadOptions& options);

// Whether two tensors of the same shape have the same values, bit for bit as f32.
absl::StatusOr<bool> SameValues(const StoredTensor& a, const StoredTensor& b);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_MODEL_WEIGHT_READER_H_
