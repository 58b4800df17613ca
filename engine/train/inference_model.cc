#include "engine/train/inference_model.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/model/model_directory.h"
#include "engine/state/load_weights.h"
#include "engine/train/model_tokenizer.h"
#include "engine/train/text_ends.h"

namespace millrace {

absl::StatusOr<std::unique_ptr<InferenceModel>> InferenceModel::Load(
    const std::string& path, DType compute, int threads, absl::FunctionRef<absl::Status()> check) {
  auto model = std::make_unique<InferenceModel>();
  MILLRACE_ASSIGN_OR_RETURN(model->spec, ReadModelDirectoryConfig(path));
  MILLRACE_ASSIGN_OR_RETURN(model->tokenizer, LoadModelTokenizer(path));
  if (model->tokenizer->vocab_size() > model->spec.vocab_size) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": its tokenizer has ", model->tokenizer->vocab_size(),
                     " tokens, more than the ", model->spec.vocab_size, " of the model"));
  }
  MILLRACE_ASSIGN_OR_RETURN(model->ends, ReadTextEnds(path, *model->tokenizer));
  model->pool = std::make_unique<ThreadPool>(threads);
  MILLRACE_ASSIGN_OR_RETURN(
      model->state, HostState::CreateWeights(MakeSlabLayouts(model->spec), compute, *model->pool));
  MILLRACE_RETURN_IF_ERROR(LoadWeights(model->spec, path, *model->pool, model->state.get(), check));
  return model;
}

bool InferenceModel::Ends(int32_t token) const {
  return std::binary_search(ends.begin(), ends.end(), token);
}

absl::StatusOr<int64_t> InferenceWeightBytes(const std::string& path, DType compute) {
  MILLRACE_ASSIGN_OR_RETURN(const ModelSpec spec, ReadModelDirectoryConfig(path));
  int64_t count = 0;
  for (const SlabLayout& layout : MakeSlabLayouts(spec)) count += layout.count;
  return static_cast<int64_t>(ElementBytes(count, compute));
}

}  // namespace millrace
