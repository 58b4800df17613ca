// The tokenizer of a job, and its files, which stay with the run: checkpoints have them beside the
// weights, so that what a job leaves is a whole model, and goes on when its source is gone.
//
//   MILLRACE_RETURN_IF_ERROR(KeepTokenizer(spec, checkpoint, job_folder + "/tokenizer"));
//   MILLRACE_ASSIGN_OR_RETURN(auto tokenizer, LoadKeptTokenizer(spec, job_folder + "/tokenizer"));
#ifndef MILLRACE_ENGINE_TRAIN_JOB_TOKENIZER_H_
#define MILLRACE_ENGINE_TRAIN_JOB_TOKENIZER_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/data/tokenizer.h"
#include "engine/train/train_spec.h"

namespace millrace {

// What `spec` names: the bytes, the tokenizer of `tokenizer_path`, or that of the model that it
// begins with. INVALID_ARGUMENT begins with the field that is to blame.
absl::StatusOr<std::unique_ptr<Tokenizer>> MakeJobTokenizer(const TrainSpec& spec);

// Makes `folder`, which is there as a whole or not at all, of the tokenizer's files: those of a
// Hugging Face model directory, or those that give the tokens of a GGUF file
// (model_tokenizer.h). A run that goes on from the checkpoint in `checkpoint_folder` keeps those it
// has, or takes them from there; one that begins (empty) takes them from where `spec` says.
absl::Status KeepTokenizer(const TrainSpec& spec, const std::string& checkpoint_folder,
                           const std::string& folder);

// The tokenizer of a run whose files lie in `folder`.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadKeptTokenizer(const TrainSpec& spec,
                                                             const std::string& folder);

// The bytes (engine/data/byte_tokenizer.h) as a tokenizer.json that gives the same tokens.
std::string ByteTokenizerJson();

}  // namespace millrace

#endif  // MILLRACE_ENGINE_TRAIN_JOB_TOKENIZER_H_
