// The weights of a model on disk as elements of slabs, without a copy of the model in memory: for
// whoever writes them in another format.
//
//   MILLRACE_ASSIGN_OR_RETURN(auto weights, WeightSource::Open(layouts, "job/checkpoints/200"));
//   MILLRACE_RETURN_IF_ERROR(weights->Read(unit, offset, out));
#ifndef MILLRACE_ENGINE_MODEL_WEIGHT_SOURCE_H_
#define MILLRACE_ENGINE_MODEL_WEIGHT_SOURCE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/model/file_tensor.h"
#include "engine/model/slab_layout.h"
#include "engine/model/stored_tensor.h"

namespace millrace {

// Used by one thread. Takes the memory of one tensor in f32 where files hold the transpose of what
// slabs do, else next to none.
class WeightSource {
 public:
  // Of the model directory or GGUF file `path`. INVALID_ARGUMENT names a tensor of the layouts that
  // it does not have, or has in another shape.
  static absl::StatusOr<std::unique_ptr<WeightSource>> Open(const std::vector<SlabLayout>& layouts,
                                                            const std::string& path);

  // Elements [offset, offset + out.size()) of the slab of `unit` as f32. OUT_OF_RANGE where they
  // are no tensor's.
  absl::Status Read(int64_t unit, int64_t offset, absl::Span<float> out);

 private:
  struct Tensor {
    FileTensor place;
    StoredTensor stored;
  };
  struct Run {
    RowRun rows;
    int64_t count = 0;  // elements
    size_t tensor = 0;
  };

  absl::Status ReadRun(const Run& run, int64_t first, absl::Span<float> out);

  std::vector<Tensor> tensors_;
  std::vector<Run> runs_;  // by unit and offset
  // Of the tensor that was turned over last, as the slab has its rows.
  size_t turned_tensor_ = SIZE_MAX;
  std::vector<float> turned_;
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_MODEL_WEIGHT_SOURCE_H_
