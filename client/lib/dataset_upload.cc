#include "client/lib/dataset_upload.h"

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "client/lib/errors.h"
#include "client/lib/local_file.h"
#include "proto/job_file/text_check.h"

namespace millrace {
namespace {

// The daemon reads all of the content.
constexpr absl::Duration kFinalizeDeadline = absl::Minutes(30);

class Upload {
 public:
  Upload(Connection& connection, const std::string& dataset_id, const std::string& path,
         const TransferOptions& options)
      : connection_(connection),
        dataset_id_(dataset_id),
        name_(absl::StrCat("datasets/", dataset_id)),
        path_(path),
        options_(options) {}

  absl::StatusOr<v1::Dataset> Run() {
    v1::CreateDatasetRequest request;
    request.set_dataset_id(dataset_id_);
    absl::Status status = DescribeFiles(request.mutable_dataset());
    if (!status.ok()) return status;
    absl::StatusOr<v1::Dataset> dataset = connection_.Call(
        connection_.datasets(), &v1::DatasetService::StubInterface::CreateDataset, request);
    if (!dataset.ok() || dataset->state() == v1::Dataset::READY) return dataset;

    progress_.phase = TransferProgress::TRANSFERRING;
    progress_.done_bytes = 0;
    for (const v1::DatasetFile& file : dataset->files()) {
      progress_.done_bytes += file.committed_bytes();
    }
    Report();
    for (const v1::DatasetFile& file : dataset->files()) {
      status = SendFile(file);
      if (!status.ok()) return status;
    }

    progress_.phase = TransferProgress::CHECKING;
    Report();
    v1::FinalizeDatasetRequest finalize;
    finalize.set_name(name_);
    return connection_.Call(connection_.datasets(),
                            &v1::DatasetService::StubInterface::FinalizeDataset, finalize,
                            kFinalizeDeadline);
  }

 private:
  void Report() {
    if (options_.on_progress) options_.on_progress(progress_);
  }

  std::string LocalPath(const std::string& file) const {
    std::error_code ignored;
    return std::filesystem::is_directory(path_, ignored)
               ? (std::filesystem::path(path_) / file).string()
               : path_;
  }

  // Sizes first, so that the progress has a total.
  absl::Status DescribeFiles(v1::Dataset* dataset) {
    absl::StatusOr<std::vector<std::string>> files = ListFiles(path_);
    if (!files.ok()) return files.status();
    for (const std::string& path : *files) {
      if (!CheckText(path).ok()) {
        return absl::InvalidArgumentError(absl::StrCat("the name of the file \"",
                                                       absl::CHexEscape(path),
                                                       "\" is not UTF-8 text; rename the file"));
      }
      absl::StatusOr<LocalFile> file = LocalFile::OpenForReading(LocalPath(path));
      if (!file.ok()) return file.status();
      absl::StatusOr<int64_t> size = file->Size();
      if (!size.ok()) return size.status();
      v1::DatasetFile* described = dataset->add_files();
      described->set_path(path);
      described->set_size_bytes(*size);
      progress_.total_bytes += *size;
    }
    Report();
    for (v1::DatasetFile& described : *dataset->mutable_files()) {
      absl::StatusOr<LocalFile> file = LocalFile::OpenForReading(LocalPath(described.path()));
      if (!file.ok()) return file.status();
      absl::StatusOr<std::string> hash =
          HashFile(*file, described.size_bytes(), [&](int64_t bytes) {
            progress_.done_bytes += bytes;
            Report();
            return !connection_.options().stop.stop_requested();
          });
      if (!hash.ok()) return hash.status();
      described.set_sha256(*hash);
    }
    return absl::OkStatus();
  }

  // The daemon's word on how much of a file it has.
  absl::StatusOr<int64_t> CommittedBytes(const std::string& path) {
    v1::GetDatasetRequest request;
    request.set_name(name_);
    absl::StatusOr<v1::Dataset> dataset = connection_.Call(
        connection_.datasets(), &v1::DatasetService::StubInterface::GetDataset, request);
    if (!dataset.ok()) return dataset.status();
    for (const v1::DatasetFile& file : dataset->files()) {
      if (file.path() == path) return file.committed_bytes();
    }
    return absl::AbortedError(absl::StrCat(name_, " was changed by somebody else meanwhile"));
  }

  absl::Status SendFile(const v1::DatasetFile& file) {
    absl::StatusOr<LocalFile> local = LocalFile::OpenForReading(LocalPath(file.path()));
    if (!local.ok()) return local.status();
    int64_t committed = file.committed_bytes();
    const int64_t done_before = progress_.done_bytes - committed;
    bool first = true;
    // Stays set over tries that do not come so far as to fail in the same way.
    bool was_mismatch = false;
    absl::Status status = ResumeStream(
        connection_, options_.on_reconnect,
        [&](grpc::ClientContext* context, bool* progress) -> absl::Status {
          if (!std::exchange(first, false)) {
            absl::StatusOr<int64_t> now = CommittedBytes(file.path());
            if (!now.ok()) return now.status();
            *progress = *now > committed;
            committed = *now;
          }
          progress_.done_bytes = done_before + committed;
          if (committed == file.size_bytes()) return absl::OkStatus();
          absl::Status sent = SendFrom(context, *local, file, committed, done_before);
          std::string reason = ErrorReason(sent);
          if (reason == "CHECKSUM_MISMATCH" && !std::exchange(was_mismatch, true)) {
            return absl::AbortedError(sent.message());
          }
          if (reason == "OFFSET_MISMATCH") return absl::AbortedError(sent.message());
          return sent;
        },
        /*known_to_be_there=*/true);
    if (ErrorReason(status) == "CHECKSUM_MISMATCH") {
      return absl::AbortedError(absl::StrCat(LocalPath(file.path()),
                                             " was changed while it was uploaded; when nothing "
                                             "writes to it any more, delete ",
                                             name_, " and upload again"));
    }
    return status;
  }

  absl::Status SendFrom(grpc::ClientContext* context, const LocalFile& local,
                        const v1::DatasetFile& file, int64_t offset, int64_t done_before) {
    v1::UploadDatasetFileResponse response;
    auto stream = connection_.datasets().UploadDatasetFile(context, &response);
    v1::UploadDatasetFileRequest message;
    message.mutable_header()->set_name(name_);
    message.mutable_header()->set_path(file.path());
    message.mutable_header()->set_offset(offset);
    bool open = stream->Write(message);
    while (open && offset < file.size_bytes()) {
      size_t wanted =
          static_cast<size_t>(std::min<int64_t>(kChunkBytes, file.size_bytes() - offset));
      absl::Status status = local.Read(offset, wanted, message.mutable_data());
      if (status.ok() && message.data().size() < wanted) {
        status = absl::FailedPreconditionError(
            absl::StrCat(LocalPath(file.path()), " became shorter while it was uploaded"));
      }
      if (!status.ok()) {
        context->TryCancel();
        stream->Finish();
        return status;
      }
      open = stream->Write(message);
      if (!open) break;
      offset += static_cast<int64_t>(wanted);
      progress_.done_bytes = done_before + offset;
      Report();
    }
    if (open) stream->WritesDone();
    absl::Status status = StatusFromGrpc(stream->Finish());
    if (status.ok() && response.committed_bytes() < file.size_bytes()) {
      return absl::AbortedError("the daemon ended the upload early");
    }
    return status;
  }

  Connection& connection_;
  const std::string dataset_id_;
  const std::string name_;
  const std::string path_;
  const TransferOptions& options_;
  TransferProgress progress_;
};

}  // namespace

absl::StatusOr<v1::Dataset> UploadDataset(Connection& connection, const std::string& dataset_id,
                                          const std::string& path, const TransferOptions& options) {
  return Upload(connection, dataset_id, path, options).Run();
}

}  // namespace millrace
