#include "server/worker/tokenizer_trainer.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "engine/base/file.h"
#include "engine/base/status_macros.h"
#include "server/base/errors.h"
#include "server/base/resource_names.h"
#include "server/blobs/tokenizer_store.h"
#include "server/worker/child_task.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> CommandOf(const std::string& program,
                                   const TokenizerTrainer::Request& request,
                                   const std::string& dataset, const std::string& out) {
  std::vector<std::string> command = {program,
                                      "train-tokenizer",
                                      "--dataset",
                                      dataset,
                                      "--out",
                                      out,
                                      absl::StrCat("--vocab-size=", request.vocab_size)};
  if (request.min_frequency != 0) {
    command.push_back(absl::StrCat("--min-frequency=", request.min_frequency));
  }
  if (!request.split.empty()) command.push_back(absl::StrCat("--split=", request.split));
  for (const std::string& token : request.special_tokens) {
    command.push_back(absl::StrCat("--special-token=", token));
  }
  return command;
}

// Of the child's error.
absl::Status TrainingError(const absl::Status& status) {
  if (absl::IsResourceExhausted(status)) {
    return MakeError(ErrorReason::kDiskFull, absl::StrCat(status.message(), "; free some space"));
  }
  if (!absl::IsInvalidArgument(status)) return status;
  return MakeError(ErrorReason::kConfigInvalid, status.message());
}

absl::StatusOr<std::vector<BlobFile>> FilesIn(const std::string& folder) {
  std::vector<BlobFile> files;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    BlobFile file;
    file.path = entry->path().filename().string();
    std::error_code gone;
    file.size_bytes = static_cast<int64_t>(entry->file_size(gone));
    if (gone) return ErrnoToStatus(gone.value(), "read", entry->path().string());
    MILLRACE_ASSIGN_OR_RETURN(file.sha256, Sha256OfFile(entry->path().string()));
    files.push_back(std::move(file));
  }
  if (error) return ErrnoToStatus(error.value(), "list", folder);
  std::sort(files.begin(), files.end(),
            [](const BlobFile& a, const BlobFile& b) { return a.path < b.path; });
  return files;
}

}  // namespace

absl::StatusOr<StoredBlob> TokenizerTrainer::Train(const Request& request) {
  for (size_t i = 0; i < request.special_tokens.size(); ++i) {
    // As arguments of a program these would be lost.
    const std::string& token = request.special_tokens[i];
    if (!token.empty() && token.find('\0') == std::string::npos) continue;
    return MakeFieldError(ErrorReason::kConfigInvalid,
                          {{absl::StrCat("special_tokens[", i, "]"),
                            token.empty() ? "is empty; give its text, or leave it out"
                                          : "has a NUL character; leave it out"}});
  }
  MILLRACE_RETURN_IF_ERROR(options_.tokenizers->CheckFree(request.id));
  MILLRACE_ASSIGN_OR_RETURN(const std::string dataset_id,
                            ParseDatasetName("dataset", request.dataset));
  MILLRACE_ASSIGN_OR_RETURN(const StoredBlob dataset, options_.datasets->Get(dataset_id));
  if (!dataset.ready) {
    return MakeFieldError(
        ErrorReason::kConfigInvalid,
        {{"dataset",
          absl::StrCat(request.dataset, " is still being uploaded; finish the upload")}});
  }
  if (training_.exchange(true)) {
    return WithRetryDelay(
        MakeError(ErrorReason::kBusy, "another tokenizer is being trained; try again later"),
        absl::Seconds(5));
  }
  const std::string folder = absl::StrCat(options_.folder, "/.creating-", request.id, ".training");
  const auto done = absl::MakeCleanup([&] {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
    training_ = false;
  });
  return Make(request, dataset_id, folder);
}

absl::StatusOr<StoredBlob> TokenizerTrainer::Make(const Request& request,
                                                  const std::string& dataset_id,
                                                  const std::string& folder) {
  const absl::StatusOr<nlohmann::json> trained = RunChildTask(
      {.command = CommandOf(options_.worker_program, request,
                            options_.datasets->FilesFolder(dataset_id), folder),
       .on_progress =
           [&request](const nlohmann::json& progress) {
             if (!request.on_progress) return;
             request.on_progress(progress.value("phase", ""), progress.value("done", int64_t{0}),
                                 progress.value("total", int64_t{0}));
           },
       .cancelled = request.cancelled});
  if (!trained.ok()) {
    // It may have been deleted meanwhile.
    MILLRACE_RETURN_IF_ERROR(options_.datasets->Get(dataset_id).status());
    return TrainingError(trained.status());
  }
  MILLRACE_ASSIGN_OR_RETURN(std::vector<BlobFile> files, FilesIn(folder));
  return options_.tokenizers->Add(
      request.id, std::move(files),
      {{tokenizer_fact::kVocab, trained->value("vocab_size", int64_t{0})},
       {tokenizer_fact::kDataset, request.dataset}},
      folder);
}

}  // namespace millrace
