// Sending files to the daemon as a dataset or a model: what both have in common.
//
//   BlobUpload<DatasetApi>(connection, "plays", path, files, options).Run()
//
// Api names the messages and calls of one service:
//
//   static constexpr char kCollection[];       // "datasets"
//   using Resource, UploadRequest, UploadResponse;
//   static bool IsReady(const Resource&);
//   static absl::StatusOr<Resource> Create(Connection&, id, described);
//   static absl::StatusOr<Resource> Get(Connection&, name);
//   static absl::StatusOr<Resource> Finalize(Connection&, name);
//   static std::unique_ptr<grpc::ClientWriterInterface<UploadRequest>> Open(
//       Connection&, grpc::ClientContext*, UploadResponse*);
#ifndef MILLRACE_CLIENT_LIB_BLOB_UPLOAD_H_
#define MILLRACE_CLIENT_LIB_BLOB_UPLOAD_H_

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "client/lib/connection.h"
#include "client/lib/errors.h"
#include "client/lib/local_file.h"
#include "client/lib/transfer.h"
#include "proto/job_file/text_check.h"

namespace millrace {

// The daemon reads all of the content.
inline constexpr absl::Duration kFinalizeDeadline = absl::Minutes(30);

template <typename Api>
class BlobUpload {
 public:
  using Resource = typename Api::Resource;

  // `files` are relative to the folder `path`, or the name of the file `path` alone.
  BlobUpload(Connection& connection, const std::string& id, const std::string& path,
             std::vector<std::string> files, const TransferOptions& options)
      : connection_(connection),
        id_(id),
        name_(absl::StrCat(Api::kCollection, "/", id)),
        path_(path),
        files_(std::move(files)),
        options_(options) {}

  // The READY resource. Each file goes on at the byte that the daemon has safely.
  absl::StatusOr<Resource> Run() {
    Resource described;
    absl::Status status = DescribeFiles(&described);
    if (!status.ok()) return status;
    absl::StatusOr<Resource> resource = Api::Create(connection_, id_, described);
    if (!resource.ok() || Api::IsReady(*resource)) return resource;

    progress_.phase = TransferProgress::TRANSFERRING;
    progress_.done_bytes = 0;
    for (const auto& file : resource->files()) progress_.done_bytes += file.committed_bytes();
    Report();
    for (const auto& file : resource->files()) {
      status = SendFile(file);
      if (!status.ok()) return status;
    }

    progress_.phase = TransferProgress::CHECKING;
    Report();
    return Api::Finalize(connection_, name_);
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
  absl::Status DescribeFiles(Resource* resource) {
    for (const std::string& path : files_) {
      if (!CheckText(path).ok()) {
        return absl::InvalidArgumentError(absl::StrCat("the name of the file \"",
                                                       absl::CHexEscape(path),
                                                       "\" is not UTF-8 text; rename the file"));
      }
      absl::StatusOr<LocalFile> file = LocalFile::OpenForReading(LocalPath(path));
      if (!file.ok()) return file.status();
      absl::StatusOr<int64_t> size = file->Size();
      if (!size.ok()) return size.status();
      auto* described = resource->add_files();
      described->set_path(path);
      described->set_size_bytes(*size);
      progress_.total_bytes += *size;
    }
    Report();
    for (auto& described : *resource->mutable_files()) {
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
    absl::StatusOr<Resource> resource = Api::Get(connection_, name_);
    if (!resource.ok()) return resource.status();
    for (const auto& file : resource->files()) {
      if (file.path() == path) return file.committed_bytes();
    }
    return absl::AbortedError(absl::StrCat(name_, " was changed by somebody else meanwhile"));
  }

  template <typename File>
  absl::Status SendFile(const File& file) {
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

  template <typename File>
  absl::Status SendFrom(grpc::ClientContext* context, const LocalFile& local, const File& file,
                        int64_t offset, int64_t done_before) {
    typename Api::UploadResponse response;
    auto stream = Api::Open(connection_, context, &response);
    typename Api::UploadRequest message;
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
  const std::string id_;
  const std::string name_;
  const std::string path_;
  const std::vector<std::string> files_;
  const TransferOptions& options_;
  TransferProgress progress_;
};

}  // namespace millrace

#endif  // MILLRACE_CLIENT_LIB_BLOB_UPLOAD_H_
