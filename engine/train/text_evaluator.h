// The loss of a model on a dataset, packed as evaluation during training has it.
#ifndef MILLRACE_ENGINE_TRAIN_TEXT_EVALUATOR_H_
#define MILLRACE_ENGINE_TRAIN_TEXT_EVALUATOR_H_

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/train/inference_model.h"

namespace millrace {

struct EvaluateOptions {
  std::string dataset;          // file or folder
  int64_t sequence_length = 0;  // 0: the model's context, at most 2048
  int64_t max_sequences = 0;    // 0: all
  // For the dataset's tokens; what an earlier call left there is used again where it still fits.
  std::string token_folder;
};

struct EvaluateFigures {
  int64_t sequences_done = 0, sequences_total = 0;
  int64_t tokens = 0;   // predicted
  double loss_sum = 0;  // Σ −ln p
  double seconds = 0;   // without tokenizing

  double loss() const { return tokens == 0 ? 0 : loss_sum / static_cast<double>(tokens); }
};

// Calls `progress` after every few sequences; a status of it that is not OK ends the evaluation, as
// the flag does with CANCELLED. INVALID_ARGUMENT names the option when the model or the dataset is
// too short for it.
absl::StatusOr<EvaluateFigures> EvaluateTexts(
    const InferenceModel& model, const EvaluateOptions& options, const std::atomic<bool>* cancelled,
    absl::FunctionRef<absl::Status(const EvaluateFigures&)> progress);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_TRAIN_TEXT_EVALUATOR_H_
