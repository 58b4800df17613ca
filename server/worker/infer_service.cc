#include "server/worker/infer_service.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/base/file.h"
#include "engine/base/status_macros.h"
#include "engine/train/system_memory.h"
#include "engine/train/text_evaluator.h"
#include "engine/train/text_generator.h"

namespace millrace {
namespace {

using v1::GenerateTextResponse;

constexpr int64_t kUsualTokens = 128;

// The daemon adds details.
grpc::Status WithoutDetails(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

absl::Status Gone() { return absl::CancelledError("the reader is gone"); }

SamplingParams SamplingOf(const v1::SamplingOptions& options) {
  SamplingParams params;
  if (options.has_temperature()) params.temperature = options.temperature();
  if (options.has_top_k()) params.top_k = options.top_k();
  if (options.has_top_p()) params.top_p = options.top_p();
  if (options.has_min_p()) params.min_p = options.min_p();
  if (options.has_repetition_penalty()) params.repetition_penalty = options.repetition_penalty();
  return params;
}

int64_t SeedOf(const v1::SamplingOptions& options) {
  if (options.has_seed()) return options.seed();
  // Short enough to be typed again.
  return static_cast<int64_t>(std::random_device()() % 1'000'000'000);
}

GenerateTextResponse::FinishReason ReasonOf(TextEnd end) {
  switch (end) {
    case TextEnd::kNone:
      break;
    case TextEnd::kEnd:
      return GenerateTextResponse::END;
    case TextEnd::kStop:
      return GenerateTextResponse::STOP;
    case TextEnd::kLength:
      return GenerateTextResponse::LENGTH;
  }
  return GenerateTextResponse::FINISH_REASON_UNSPECIFIED;
}

// As many as fit beside the longest prompt where the request does not say.
int64_t MaxTokens(const v1::GenerateTextRequest& request,
                  const std::vector<std::vector<int32_t>>& prompts, const ModelSpec& spec) {
  if (request.max_tokens() > 0) return request.max_tokens();
  size_t longest = 0;
  for (const auto& prompt : prompts) longest = std::max(longest, prompt.size());
  return std::clamp<int64_t>(spec.max_positions - static_cast<int64_t>(longest), 1, kUsualTokens);
}

}  // namespace

void InferServiceImpl::SetModel(absl::StatusOr<std::unique_ptr<InferenceModel>> model,
                                double load_seconds) {
  absl::MutexLock lock(&mutex_);
  model_ = std::move(model);
  load_seconds_ = load_seconds;
  loaded_ = true;
}

absl::StatusOr<const InferenceModel*> InferServiceImpl::Model() {
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(&loaded_));
  MILLRACE_RETURN_IF_ERROR(model_.status());
  return model_->get();
}

grpc::ServerWriteReactor<v1::GenerateTextResponse>* InferServiceImpl::GenerateText(
    grpc::CallbackServerContext*, const v1::GenerateTextRequest* request) {
  return GenerateStream::Start(
      [this, request = *request](GenerateStream& stream) { return Generate(request, stream); },
      WithoutDetails);
}

grpc::ServerWriteReactor<v1::EvaluateTextResponse>* InferServiceImpl::EvaluateText(
    grpc::CallbackServerContext*, const v1::EvaluateTextRequest* request) {
  return EvaluateStream::Start(
      [this, request = *request](EvaluateStream& stream) { return Evaluate(request, stream); },
      WithoutDetails);
}

absl::Status InferServiceImpl::Generate(const v1::GenerateTextRequest& request,
                                        GenerateStream& stream) {
  MILLRACE_ASSIGN_OR_RETURN(const InferenceModel* const model, Model());
  std::vector<std::vector<int32_t>> prompts;
  GenerateTextResponse response;
  GenerateTextResponse::Started& started = *response.mutable_started();
  started.set_model(request.model());
  for (const std::string& prompt : request.prompts()) {
    prompts.push_back(EncodePrompt(*model->tokenizer, prompt));
    started.add_prompt_tokens(static_cast<int32_t>(prompts.back().size()));
  }
  GenerateOptions options;
  options.max_tokens = MaxTokens(request, prompts, model->spec);
  options.sampling = SamplingOf(request.sampling());
  started.set_seed(SeedOf(request.sampling()));
  options.seed = static_cast<uint64_t>(started.seed());
  options.stop.assign(request.stop().begin(), request.stop().end());
  options.ignore_end = request.ignore_end();
  {
    absl::MutexLock lock(&mutex_);
    started.set_load_seconds(std::exchange(load_seconds_, 0));
  }
  if (!stream.Write(response)) return Gone();

  const absl::StatusOr<GenerateFigures> figures = GenerateTexts(
      *model, prompts, options, FreeMemoryBytes(), &stream.cancelled(), [&](TextPiece piece) {
        GenerateTextResponse::Piece& sent = *response.mutable_piece();
        sent.Clear();
        sent.set_prompt(static_cast<int32_t>(piece.prompt));
        sent.set_text(std::move(piece.text));
        sent.mutable_tokens()->Add(piece.tokens.begin(), piece.tokens.end());
        sent.set_finish_reason(ReasonOf(piece.end));
        return stream.Write(response) ? absl::OkStatus() : Gone();
      });
  MILLRACE_RETURN_IF_ERROR(figures.status());
  GenerateTextResponse::Finished& finished = *response.mutable_finished();
  finished.set_prompt_tokens(figures->prompt_tokens);
  finished.set_prompt_seconds(figures->prompt_seconds);
  finished.set_generated_tokens(figures->generated_tokens);
  finished.set_generation_seconds(figures->generation_seconds);
  return stream.Write(response) ? absl::OkStatus() : Gone();
}

absl::Status InferServiceImpl::Evaluate(const v1::EvaluateTextRequest& request,
                                        EvaluateStream& stream) {
  MILLRACE_ASSIGN_OR_RETURN(const InferenceModel* const model, Model());
  // Two at a time would only take turns, and might write the same tokens.
  absl::MutexLock one_at_a_time(&evaluation_mutex_);
  EvaluateOptions options;
  options.dataset = request.dataset();
  options.sequence_length = request.sequence_length();
  options.max_sequences = request.max_sequences();
  // One for each dataset, whose tokens another's would take the place of.
  options.token_folder =
      absl::StrCat(token_folder_, "/", absl::StrReplaceAll(request.dataset(), {{"/", "_"}}));
  MILLRACE_RETURN_IF_ERROR(MakeFolderDurably(options.token_folder));

  v1::EvaluateTextResponse response;
  response.set_model(request.model());
  const auto send = [&](const EvaluateFigures& figures) {
    response.set_sequences_done(figures.sequences_done);
    response.set_sequences_total(figures.sequences_total);
    response.set_tokens(figures.tokens);
    response.set_loss(figures.loss());
    response.set_perplexity(std::exp(figures.loss()));
    response.set_seconds(figures.seconds);
    return stream.Write(response) ? absl::OkStatus() : Gone();
  };
  MILLRACE_ASSIGN_OR_RETURN(const EvaluateFigures figures,
                            EvaluateTexts(*model, options, &stream.cancelled(), send));
  response.set_complete(true);
  return send(figures);
}

}  // namespace millrace
