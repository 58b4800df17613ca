#include "server/blobs/checkpoint_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/file.h"
#include "engine/base/status_macros.h"
#include "engine/train/checkpoint_folder.h"
#include "server/base/errors.h"
#include "server/blobs/blob_names.h"

namespace millrace {
namespace {

// In a message.
constexpr size_t kMostStepsNamed = 20;

constexpr char kExports[] = "exports";
// Ends the name of what describes an export.
constexpr char kExportRecord[] = ".json";

absl::Status NotFound(const std::string& job_id, absl::string_view step,
                      const std::vector<StoredCheckpoint>& there) {
  std::string message =
      absl::StrCat("jobs/", job_id, "/checkpoints/", step, " is not there; jobs/", job_id, " has ");
  if (there.empty()) {
    absl::StrAppend(&message, "no complete checkpoint yet");
  } else if (step == "best") {
    absl::StrAppend(&message, "checkpoints, but none that was evaluated");
  } else {
    const size_t named = std::min(there.size(), kMostStepsNamed);
    absl::StrAppend(&message, "the steps ",
                    absl::StrJoin(there.begin(), there.begin() + named, ", ",
                                  [](std::string* out, const StoredCheckpoint& checkpoint) {
                                    absl::StrAppend(out, checkpoint.step);
                                  }));
    if (named < there.size()) absl::StrAppend(&message, " and ", there.size() - named, " more");
  }
  return MakeError(ErrorReason::kCheckpointNotFound, message);
}

absl::Time ModifiedTime(const std::string& path) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0) return absl::UnixEpoch();
  return absl::TimeFromTimespec(status.st_mtim);
}

}  // namespace

CheckpointFileReader::CheckpointFileReader(CheckpointFileReader&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

CheckpointFileReader& CheckpointFileReader::operator=(CheckpointFileReader&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  return *this;
}

CheckpointFileReader::~CheckpointFileReader() {
  if (fd_ >= 0) close(fd_);
}

absl::Status CheckpointFileReader::Read(size_t max_bytes, std::string* data) {
  data->resize(max_bytes);
  size_t size = 0;
  while (size < max_bytes) {
    const ssize_t count = read(fd_, data->data() + size, max_bytes - size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ErrnoToStatus(errno, "read", path_);
    if (count == 0) break;
    size += static_cast<size_t>(count);
  }
  data->resize(size);
  return absl::OkStatus();
}

std::vector<StoredCheckpoint> CheckpointStore::List(const std::string& job_id) const {
  std::vector<StoredCheckpoint> checkpoints;
  for (CheckpointInfo& info : ListCheckpoints(paths_.Checkpoints(job_id))) {
    StoredCheckpoint checkpoint;
    checkpoint.step = info.step;
    checkpoint.create_time = ModifiedTime(info.folder + "/manifest.json");
    checkpoint.evaluation_loss = info.evaluation_loss;
    checkpoint.size_bytes = info.size_bytes;
    for (WrittenFile& file : info.files) {
      checkpoint.files.push_back({std::move(file.name), file.size_bytes, std::move(file.sha256)});
    }
    checkpoints.push_back(std::move(checkpoint));
  }
  return checkpoints;
}

int64_t CheckpointStore::StoredBytes() const {
  namespace fs = std::filesystem;
  int64_t bytes = 0;
  // Files come and go meanwhile; what cannot be read counts nothing.
  std::error_code error;
  for (fs::directory_iterator job(paths_.Jobs(), error), last; !error && job != last;
       job.increment(error)) {
    std::error_code gone;
    for (fs::recursive_directory_iterator
             file(paths_.Checkpoints(job->path().filename().string()), gone),
         end;
         !gone && file != end; file.increment(gone)) {
      std::error_code ignored;
      if (!file->is_regular_file(ignored)) continue;
      const std::uintmax_t size = file->file_size(ignored);
      if (!ignored) bytes += static_cast<int64_t>(size);
    }
  }
  return bytes;
}

absl::StatusOr<StoredCheckpoint> CheckpointStore::Get(const std::string& job_id,
                                                      absl::string_view step) const {
  std::vector<StoredCheckpoint> there = List(job_id);
  auto found = there.end();
  if (step == "latest") {
    found = there.begin();
  } else if (step == "best") {
    for (auto it = there.begin(); it != there.end(); ++it) {
      if (!it->evaluation_loss.has_value()) continue;
      if (found == there.end() || *it->evaluation_loss <= *found->evaluation_loss) found = it;
    }
  } else {
    int64_t number = 0;
    if (!absl::SimpleAtoi(step, &number)) {
      return MakeFieldError(
          ErrorReason::kRequestInvalid,
          {{"name", absl::StrCat("`", step, "` is no step; give its number, `latest` or `best`")}});
    }
    found = std::find_if(there.begin(), there.end(),
                         [&](const StoredCheckpoint& item) { return item.step == number; });
  }
  if (found == there.end()) return NotFound(job_id, step, there);
  return std::move(*found);
}

std::string CheckpointStore::Folder(const std::string& job_id, int64_t step) const {
  return absl::StrCat(paths_.Checkpoints(job_id), "/", step);
}

std::string CheckpointStore::ExportsFolder(const std::string& job_id, int64_t step) const {
  return absl::StrCat(Folder(job_id, step), "/", kExports);
}

std::optional<StoredCheckpoint::File> CheckpointStore::FindExport(const std::string& job_id,
                                                                  int64_t step,
                                                                  const std::string& path) const {
  // What describes it is named after it, so that a client's path reaches no other file.
  if (!absl::StartsWith(path, absl::StrCat(kExports, "/")) ||
      !ProblemWithRelativePath(path).empty() || std::count(path.begin(), path.end(), '/') != 1) {
    return std::nullopt;
  }
  const std::string full = absl::StrCat(Folder(job_id, step), "/", path);
  const absl::StatusOr<std::string> text = ReadFile(full + kExportRecord);
  if (!text.ok()) return std::nullopt;
  const nlohmann::json record = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!record.is_object()) return std::nullopt;
  StoredCheckpoint::File file;
  file.path = path;
  file.size_bytes = record.value("size_bytes", int64_t{-1});
  file.sha256 = record.value("sha256", "");
  std::error_code error;
  const auto size = std::filesystem::file_size(full, error);
  if (error || static_cast<int64_t>(size) != file.size_bytes) return std::nullopt;
  return file;
}

absl::Status CheckpointStore::RecordExport(const std::string& job_id, int64_t step,
                                           const StoredCheckpoint::File& file) const {
  const nlohmann::json record = {{"size_bytes", file.size_bytes}, {"sha256", file.sha256}};
  return WriteFileAtomically(absl::StrCat(Folder(job_id, step), "/", file.path, kExportRecord),
                             record.dump() + "\n");
}

absl::StatusOr<CheckpointFileReader> CheckpointStore::OpenFile(const std::string& job_id,
                                                               absl::string_view step,
                                                               const std::string& path,
                                                               int64_t offset) const {
  MILLRACE_ASSIGN_OR_RETURN(const StoredCheckpoint checkpoint, Get(job_id, step));
  const std::string name = absl::StrCat("jobs/", job_id, "/checkpoints/", checkpoint.step);
  // Only what the manifest names is served, whatever the path says.
  const auto file = std::find_if(checkpoint.files.begin(), checkpoint.files.end(),
                                 [&](const StoredCheckpoint::File& f) { return f.path == path; });
  const std::optional<StoredCheckpoint::File> exported =
      file == checkpoint.files.end() ? FindExport(job_id, checkpoint.step, path) : std::nullopt;
  if (file == checkpoint.files.end() && !exported) {
    return MakeError(
        ErrorReason::kFileNotFound,
        absl::StrCat(name, " has no file `", path, "`; it has ",
                     absl::StrJoin(checkpoint.files, ", ", [](std::string* out, const auto& f) {
                       absl::StrAppend(out, f.path);
                     })));
  }
  const int64_t size_bytes = exported ? exported->size_bytes : file->size_bytes;
  if (offset < 0 || offset > size_bytes) {
    return MakeError(ErrorReason::kOffsetOutOfRange,
                     absl::StrCat("offset: ", offset, " is not within the ", size_bytes,
                                  " bytes of ", name, "/", path));
  }
  const std::string full_path =
      absl::StrCat(paths_.Checkpoints(job_id), "/", checkpoint.step, "/", path);
  const int fd = open(full_path.c_str(), O_RDONLY | O_CLOEXEC);
  // Removed just now.
  if (fd < 0 && errno == ENOENT) return NotFound(job_id, step, List(job_id));
  if (fd < 0) return ErrnoToStatus(errno, "open", full_path);
  CheckpointFileReader reader(fd, full_path);
  if (lseek(fd, offset, SEEK_SET) < 0) return ErrnoToStatus(errno, "seek in", full_path);
  return reader;
}

}  // namespace millrace
