// A model to be used: its weights in the compute type, its tokenizer, and what ends its texts.
//
//   MILLRACE_ASSIGN_OR_RETURN(auto model, InferenceModel::Load(folder, DType::kBF16, threads,
//                                                              [] { return absl::OkStatus(); }));
#ifndef MILLRACE_ENGINE_TRAIN_INFERENCE_MODEL_H_
#define MILLRACE_ENGINE_TRAIN_INFERENCE_MODEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/dtype.h"
#include "engine/base/thread_pool.h"
#include "engine/data/tokenizer.h"
#include "engine/model/model_spec.h"
#include "engine/state/host_state.h"

namespace millrace {

// Nothing of it changes once it is loaded; files are not needed any more.
struct InferenceModel {
  ModelSpec spec;
  std::unique_ptr<Tokenizer> tokenizer;
  std::vector<int32_t> ends;  // tokens that end a text, ascending
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<HostState> state;

  // Of the model directory, checkpoint or GGUF file `path`. Errors of ReadModelDirectory and
  // LoadModelTokenizer, and what `check`, asked every few megabytes, says.
  static absl::StatusOr<std::unique_ptr<InferenceModel>> Load(
      const std::string& path, DType compute, int threads, absl::FunctionRef<absl::Status()> check);

  bool Ends(int32_t token) const;
};

// Host memory that the weights of the model at `path` take.
absl::StatusOr<int64_t> InferenceWeightBytes(const std::string& path, DType compute);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_TRAIN_INFERENCE_MODEL_H_
