#include "client/lib/checkpoint_download.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/lib/errors.h"
#include "client/lib/local_file.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

// A daemon's word is not enough to write outside the folder.
bool IsSafePath(const std::string& path) {
  for (absl::string_view part : absl::StrSplit(path, '/')) {
    if (part.empty() || part == "." || part == ".." || part.find('\0') != part.npos) return false;
  }
  return true;
}

absl::Status SyncDirectory(const std::string& path) {
  int descriptor = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return FileError("open", path);
  int result = fsync(descriptor);
  close(descriptor);
  return result == 0 ? absl::OkStatus() : FileError("write", path);
}

// Brings files of one checkpoint here.
class Fetcher {
 public:
  Fetcher(Connection& connection, const std::string& name, const TransferOptions& options)
      : connection_(connection), name_(name), options_(options) {}

  TransferProgress& progress() { return progress_; }

  void Report() {
    if (options_.on_progress) options_.on_progress(progress_);
  }

  // Into the file `path`, from where an earlier try ended.
  absl::Status Fetch(const v1::CheckpointFile& file, const std::string& path) {
    absl::StatusOr<LocalFile> local = LocalFile::OpenForWriting(path);
    if (!local.ok()) return local.status();
    const int64_t done_before = progress_.done_bytes;
    for (bool again : {false, true}) {
      absl::StatusOr<int64_t> have = local->Size();
      if (!have.ok()) return have.status();
      if (again || *have > file.size_bytes()) {
        absl::Status status = local->Truncate(0);
        if (!status.ok()) return status;
        *have = 0;
      }
      progress_.done_bytes = done_before + *have;
      absl::Status status = Receive(file, *have, &*local);
      if (!status.ok()) return status;
      absl::StatusOr<std::string> hash = HashFile(*local, file.size_bytes(), [&](int64_t) {
        return !connection_.options().stop.stop_requested();
      });
      if (!hash.ok()) return hash.status();
      if (*hash == file.sha256()) return local->Sync();
    }
    return absl::DataLossError(absl::StrCat(file.path(), " of ", name_,
                                            " is damaged: its SHA-256 is not ", file.sha256(),
                                            "; fetch another checkpoint"));
  }

 private:
  absl::Status Receive(const v1::CheckpointFile& file, int64_t offset, LocalFile* local) {
    return ResumeStream(
        connection_, options_.on_reconnect,
        [&](grpc::ClientContext* context, bool* progress) -> absl::Status {
          if (offset == file.size_bytes()) return absl::OkStatus();
          v1::DownloadCheckpointFileRequest request;
          request.set_name(name_);
          request.set_path(file.path());
          request.set_offset(offset);
          auto stream = connection_.checkpoints().DownloadCheckpointFile(context, request);
          v1::DownloadCheckpointFileResponse response;
          absl::Status written;
          while (written.ok() && stream->Read(&response)) {
            *progress = true;
            int64_t size = static_cast<int64_t>(response.data().size());
            if (size > file.size_bytes() - offset) {
              written = absl::DataLossError(
                  absl::StrCat(file.path(), " of ", name_, " is longer than was listed"));
              break;
            }
            written = local->Write(offset, response.data());
            if (!written.ok()) break;
            offset += size;
            progress_.done_bytes += size;
            Report();
          }
          if (!written.ok()) context->TryCancel();
          absl::Status end = StatusFromGrpc(stream->Finish());
          if (!written.ok()) return written;
          if (end.ok() && offset < file.size_bytes()) {
            return absl::AbortedError("the daemon ended the download early");
          }
          return end;
        },
        /*known_to_be_there=*/true);
  }

  Connection& connection_;
  const std::string name_;
  const TransferOptions& options_;
  TransferProgress progress_;
};

class Download {
 public:
  Download(Connection& connection, const std::string& name, const std::string& directory,
           const TransferOptions& options)
      : connection_(connection),
        name_(name),
        directory_(StripSlashes(directory)),
        partial_(directory_ + ".partial"),
        fetcher_(connection, name, options) {}

  absl::Status Run() {
    std::error_code error;
    if (fs::exists(fs::symlink_status(directory_, error))) {
      return absl::AlreadyExistsError(
          absl::StrCat(directory_, " is there already; remove it, or name another folder with -d"));
    }
    v1::ListCheckpointFilesRequest request;
    request.set_name(name_);
    absl::StatusOr<v1::ListCheckpointFilesResponse> listing =
        connection_.Call(connection_.checkpoints(),
                         &v1::CheckpointService::StubInterface::ListCheckpointFiles, request);
    if (!listing.ok()) return listing.status();
    fetcher_.progress().phase = TransferProgress::TRANSFERRING;
    for (const v1::CheckpointFile& file : listing->files()) {
      if (!IsSafePath(file.path())) {
        return absl::DataLossError(
            absl::StrCat("the daemon offers a file outside the checkpoint: ", file.path()));
      }
      fetcher_.progress().total_bytes += file.size_bytes();
    }
    fetcher_.Report();
    for (const v1::CheckpointFile& file : listing->files()) {
      absl::Status status = fetcher_.Fetch(file, absl::StrCat(partial_, "/", file.path()));
      if (!status.ok()) return status;
    }
    return Publish(*listing);
  }

 private:
  static std::string StripSlashes(std::string path) {
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    return path;
  }

  // Drops what an earlier download of another checkpoint left, and gives the folder its name.
  absl::Status Publish(const v1::ListCheckpointFilesResponse& listing) {
    std::set<std::string> wanted;
    for (const v1::CheckpointFile& file : listing.files()) wanted.insert(file.path());
    std::error_code error;
    std::vector<fs::path> left_over;
    for (const auto& entry : fs::recursive_directory_iterator(partial_, error)) {
      std::string path = entry.path().lexically_relative(partial_).generic_string();
      if (!entry.is_directory() && wanted.count(path) == 0) left_over.push_back(entry.path());
    }
    for (const fs::path& path : left_over) fs::remove(path, error);
    absl::Status status = SyncDirectory(partial_);
    if (!status.ok()) return status;
    if (rename(partial_.c_str(), directory_.c_str()) != 0) {
      return FileError("rename to", directory_);
    }
    fs::path parent = fs::path(directory_).parent_path();
    return SyncDirectory(parent.empty() ? "." : parent.string());
  }

  Connection& connection_;
  const std::string name_;
  const std::string directory_;
  const std::string partial_;
  Fetcher fetcher_;
};

}  // namespace

absl::Status DownloadCheckpoint(Connection& connection, const std::string& name,
                                const std::string& directory, const TransferOptions& options) {
  return Download(connection, name, directory, options).Run();
}

absl::Status DownloadExport(Connection& connection, const std::string& name,
                            const v1::CheckpointFile& file, const std::string& path,
                            const TransferOptions& options) {
  const std::string partial = path + ".partial";
  Fetcher fetcher(connection, name, options);
  fetcher.progress().phase = TransferProgress::TRANSFERRING;
  fetcher.progress().total_bytes = file.size_bytes();
  absl::Status status = fetcher.Fetch(file, partial);
  if (!status.ok()) return status;
  if (rename(partial.c_str(), path.c_str()) != 0) return FileError("rename to", path);
  const fs::path parent = fs::path(path).parent_path();
  return SyncDirectory(parent.empty() ? "." : parent.string());
}

absl::StatusOr<v1::CheckpointFile> ExportCheckpoint(Connection& connection,
                                                    const v1::ExportCheckpointRequest& request,
                                                    const TransferOptions& options) {
  v1::CheckpointFile file;
  absl::Status status = ResumeStream(
      connection, options.on_reconnect,
      [&](grpc::ClientContext* context, bool* progress) -> absl::Status {
        auto stream = connection.checkpoints().ExportCheckpoint(context, request);
        v1::ExportCheckpointResponse response;
        while (stream->Read(&response)) {
          *progress = true;
          if (response.has_file()) {
            file = response.file();
          } else if (options.on_progress) {
            options.on_progress({.phase = TransferProgress::TRANSFERRING,
                                 .done_bytes = response.progress().done_bytes(),
                                 .total_bytes = response.progress().total_bytes()});
          }
        }
        absl::Status end = StatusFromGrpc(stream->Finish());
        if (end.ok() && file.path().empty()) {
          return absl::AbortedError("the daemon ended the export early");
        }
        return end;
      },
      /*known_to_be_there=*/false);
  if (!status.ok()) return status;
  return file;
}

}  // namespace millrace
