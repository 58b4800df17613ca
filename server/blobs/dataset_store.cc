#include "server/blobs/dataset_store.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "engine/base/file.h"
#include "engine/base/status_macros.h"
#include "engine/data/documents.h"
#include "server/base/errors.h"
#include "server/base/resource_names.h"
#include "server/blobs/blob_names.h"

namespace millrace {
namespace fs = std::filesystem;
namespace {

constexpr size_t kMostFiles = 10'000;
constexpr char kManifest[] = "manifest.json";
// Ids begin with a letter, so no dataset is ever called this.
constexpr char kCreating[] = ".creating-";
constexpr char kDeleting[] = ".deleting-";

absl::Status Invalid(std::string field, std::string description) {
  return MakeFieldError(ErrorReason::kDatasetInvalid, {{std::move(field), std::move(description)}});
}

absl::Status NotFound(const std::string& id) {
  return MakeError(ErrorReason::kDatasetNotFound,
                   absl::StrCat("there is no dataset datasets/", id,
                                "; `millrace datasets list` lists those there are"));
}

absl::Status MakeFolder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  return error ? ErrnoToStatus(error.value(), "create", path) : absl::OkStatus();
}

absl::Status CheckDeclaration(const std::string& id, const std::vector<DatasetFile>& files) {
  MILLRACE_RETURN_IF_ERROR(CheckId("dataset_id", id));
  if (files.empty()) return Invalid("dataset.files", "is empty; declare at least one file");
  if (files.size() > kMostFiles) {
    return Invalid("dataset.files",
                   absl::StrCat(files.size(), " files are more than ", kMostFiles,
                                "; put them together in fewer, as JSONL for example"));
  }
  std::set<std::string> paths;
  int64_t total_bytes = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    const DatasetFile& file = files[i];
    const std::string field = absl::StrCat("dataset.files[", i, "]");
    if (const std::string problem = ProblemWithRelativePath(file.path); !problem.empty()) {
      return Invalid(field + ".path",
                     absl::StrCat("`", absl::Utf8SafeCHexEscape(file.path), "` ", problem));
    }
    if (file.size_bytes < 0 || file.size_bytes > INT64_MAX - total_bytes) {
      return Invalid(field + ".size_bytes", absl::StrCat(file.size_bytes, " is out of range"));
    }
    if (const std::string problem = ProblemWithSha256(file.sha256); !problem.empty()) {
      return Invalid(field + ".sha256", absl::StrCat("`", file.sha256, "` ", problem));
    }
    if (!paths.insert(file.path).second) {
      return Invalid(field + ".path", absl::StrCat("`", file.path, "` is declared twice"));
    }
    total_bytes += file.size_bytes;
  }
  for (const std::string& path : paths) {
    for (size_t slash = path.find('/'); slash != std::string::npos;
         slash = path.find('/', slash + 1)) {
      if (paths.count(path.substr(0, slash)) > 0) {
        return Invalid("dataset.files",
                       absl::StrCat("`", path.substr(0, slash),
                                    "` is both a file and the folder of `", path, "`"));
      }
    }
  }
  if (total_bytes == 0) {
    return Invalid("dataset.files", "all files are empty; there is nothing to train on");
  }
  return absl::OkStatus();
}

// A file whose last byte came just before a crash, or that has no bytes at all, was not yet moved
// into place.
absl::Status Complete(const std::shared_ptr<DatasetFileSlot>& slot, Disk* disk) {
  if (IsComplete(*slot)) return absl::OkStatus();
  const int64_t committed = CommittedBytes(*slot);
  if (committed < slot->declared.size_bytes) {
    return MakeError(ErrorReason::kUploadIncomplete,
                     absl::StrCat("file ", slot->declared.path, ": ", committed, " of ",
                                  slot->declared.size_bytes, " bytes are here; send the others"));
  }
  MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<DatasetUpload> upload,
                            DatasetUpload::Open(slot, committed, disk));
  return upload->Finish().status();
}

// Makes the names of all files, and of the folders between, last.
absl::Status SyncFolders(const std::string& files_folder, const std::vector<DatasetFile>& files) {
  std::set<fs::path> folders = {files_folder};
  for (const DatasetFile& file : files) {
    for (fs::path part = fs::path(file.path).parent_path(); !part.empty();
         part = part.parent_path()) {
      folders.insert(files_folder / part);
    }
  }
  for (const fs::path& folder : folders) MILLRACE_RETURN_IF_ERROR(SyncFolder(folder.string()));
  return absl::OkStatus();
}

}  // namespace

struct DatasetStore::Entry {
  // Held throughout a finalization and a removal; taken before `mutex`.
  absl::Mutex finalizing;
  bool removed ABSL_GUARDED_BY(finalizing) = false;
  mutable absl::Mutex mutex;
  Dataset dataset ABSL_GUARDED_BY(mutex);
  // By path; the map itself never changes.
  std::map<std::string, std::shared_ptr<DatasetFileSlot>> slots;
};

absl::StatusOr<std::unique_ptr<DatasetStore>> DatasetStore::Open(Options options) {
  MILLRACE_RETURN_IF_ERROR(MakeFolder(options.folder));
  std::unique_ptr<DatasetStore> store(new DatasetStore(std::move(options)));
  MILLRACE_RETURN_IF_ERROR(store->Load());
  return store;
}

absl::Status DatasetStore::Load() {
  absl::MutexLock lock(&mutex_);
  std::error_code error;
  std::vector<fs::path> folders;
  for (fs::directory_iterator it(options_.folder, error), end; !error && it != end;
       it.increment(error)) {
    folders.push_back(it->path());
  }
  if (error) return ErrnoToStatus(error.value(), "list", options_.folder);
  for (const fs::path& folder : folders) {
    const std::string name = folder.filename().string();
    if (absl::StartsWith(name, kCreating) || absl::StartsWith(name, kDeleting)) {
      fs::remove_all(folder, error);
      continue;
    }
    if (!IsValidId(name)) continue;
    const std::string path = (folder / kManifest).string();
    const absl::StatusOr<std::string> text = ReadFile(path);
    absl::StatusOr<Dataset> dataset = text.ok() ? ReadDatasetManifest(*text, path) : text.status();
    if (!dataset.ok()) {
      spdlog::warn("datasets/{} is left out: {}", name, std::string(dataset.status().message()));
      continue;
    }
    dataset->id = name;
    entries_[name] = MakeEntry(*std::move(dataset));
  }
  return absl::OkStatus();
}

std::string DatasetStore::FolderOf(const std::string& id) const {
  return absl::StrCat(options_.folder, "/", id);
}

std::string DatasetStore::FilesFolder(const std::string& id) const {
  return absl::StrCat(FolderOf(id), "/files");
}

std::shared_ptr<DatasetStore::Entry> DatasetStore::MakeEntry(Dataset dataset) const {
  auto entry = std::make_shared<Entry>();
  for (const DatasetFile& file : dataset.files) {
    auto slot = std::make_shared<DatasetFileSlot>();
    slot->declared = file;
    slot->part_path = absl::StrCat(FolderOf(dataset.id), "/parts/", file.path);
    slot->final_path = absl::StrCat(FilesFolder(dataset.id), "/", file.path);
    entry->slots.emplace(file.path, std::move(slot));
  }
  absl::MutexLock lock(&entry->mutex);
  entry->dataset = std::move(dataset);
  return entry;
}

absl::StatusOr<std::shared_ptr<DatasetStore::Entry>> DatasetStore::Find(
    const std::string& id) const {
  absl::MutexLock lock(&mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end()) return NotFound(id);
  return found->second;
}

Dataset DatasetStore::Snapshot(const Entry& entry) {
  absl::MutexLock lock(&entry.mutex);
  Dataset dataset = entry.dataset;
  for (DatasetFile& file : dataset.files) {
    file.committed_bytes =
        dataset.ready ? file.size_bytes : CommittedBytes(*entry.slots.at(file.path));
  }
  return dataset;
}

int64_t DatasetStore::OutstandingBytes() const {
  std::vector<std::shared_ptr<Entry>> entries;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [id, entry] : entries_) entries.push_back(entry);
  }
  int64_t bytes = 0;
  for (const std::shared_ptr<Entry>& entry : entries) {
    {
      absl::MutexLock lock(&entry->mutex);
      if (entry->dataset.ready) continue;
    }
    for (const auto& [path, slot] : entry->slots) {
      bytes += slot->declared.size_bytes - CommittedBytes(*slot);
    }
  }
  return bytes;
}

absl::StatusOr<Dataset> DatasetStore::Create(const std::string& id,
                                             std::vector<DatasetFile> files) {
  MILLRACE_RETURN_IF_ERROR(CheckDeclaration(id, files));
  std::sort(files.begin(), files.end(),
            [](const DatasetFile& a, const DatasetFile& b) { return a.path < b.path; });

  absl::MutexLock creating(&folders_);
  if (const absl::StatusOr<std::shared_ptr<Entry>> found = Find(id); found.ok()) {
    Dataset there = Snapshot(**found);
    if (there.files == files) return there;
    return MakeError(
        ErrorReason::kIdTaken,
        absl::StrCat("datasets/", id, " is there already with other files; choose ",
                     "another id, or remove it with `millrace datasets delete ", id, "` first"));
  }
  std::error_code ignored;
  if (fs::exists(FolderOf(id), ignored)) {
    return MakeError(ErrorReason::kIdTaken,
                     absl::StrCat("datasets/", id, " was left out as damaged when the daemon ",
                                  "started; choose another id, or remove ", FolderOf(id)));
  }

  Dataset dataset;
  dataset.id = id;
  dataset.create_time = absl::Now();
  for (DatasetFile& file : files) {
    file.committed_bytes = 0;
    dataset.size_bytes += file.size_bytes;
  }
  dataset.files = std::move(files);
  MILLRACE_ASSIGN_OR_RETURN(const int64_t free_bytes, options_.disk->FreeBytes(options_.folder));
  const int64_t outstanding_bytes = OutstandingBytes();
  if (dataset.size_bytes > free_bytes - outstanding_bytes) {
    return MakeError(
        ErrorReason::kDiskFull,
        absl::StrCat("datasets/", id, " needs ", dataset.size_bytes, " bytes; ", free_bytes,
                     " are free on the disk of ", options_.folder, ", of which ", outstanding_bytes,
                     " are for uploads under way; free some space"));
  }

  const std::string fresh = FolderOf(absl::StrCat(kCreating, id));
  fs::remove_all(fresh, ignored);
  MILLRACE_RETURN_IF_ERROR(MakeFolder(fresh));
  MILLRACE_RETURN_IF_ERROR(
      WriteFileAtomically(absl::StrCat(fresh, "/", kManifest), WriteDatasetManifest(dataset)));
  if (std::rename(fresh.c_str(), FolderOf(id).c_str()) != 0) {
    return ErrnoToStatus(errno, "move into place", fresh);
  }
  const std::shared_ptr<Entry> entry = MakeEntry(std::move(dataset));
  {
    absl::MutexLock lock(&mutex_);
    entries_[id] = entry;
  }
  MILLRACE_RETURN_IF_ERROR(SyncFolder(options_.folder));
  return Snapshot(*entry);
}

absl::StatusOr<std::unique_ptr<DatasetUpload>> DatasetStore::OpenUpload(const std::string& id,
                                                                        const std::string& path,
                                                                        int64_t offset) {
  MILLRACE_ASSIGN_OR_RETURN(const std::shared_ptr<Entry> entry, Find(id));
  const auto slot = entry->slots.find(path);
  if (slot == entry->slots.end()) {
    return MakeError(ErrorReason::kFileNotFound,
                     absl::StrCat("datasets/", id, " declares no file `", path, "`"));
  }
  return DatasetUpload::Open(slot->second, offset, options_.disk);
}

absl::StatusOr<Dataset> DatasetStore::Finalize(const std::string& id) {
  MILLRACE_ASSIGN_OR_RETURN(const std::shared_ptr<Entry> entry, Find(id));
  absl::StatusOr<Dataset> dataset = FinalizeEntry(id, *entry);
  // Where it cannot be removed it stays UPLOADING, and whoever declares it again is told so.
  if (absl::IsInvalidArgument(dataset.status())) Remove(id, entry).IgnoreError();
  return dataset;
}

absl::StatusOr<Dataset> DatasetStore::FinalizeEntry(const std::string& id, Entry& entry) {
  absl::MutexLock finalizing(&entry.finalizing);
  if (entry.removed) return NotFound(id);
  Dataset dataset = Snapshot(entry);
  if (dataset.ready) return dataset;

  for (const auto& [path, slot] : entry.slots) {
    MILLRACE_RETURN_IF_ERROR(Complete(slot, options_.disk));
  }
  MILLRACE_RETURN_IF_ERROR(SyncFolders(FilesFolder(id), dataset.files));
  const absl::StatusOr<DocumentCounts> counts = CheckDocuments(FilesFolder(id));
  if (!counts.ok()) {
    if (!absl::IsInvalidArgument(counts.status())) return counts.status();
    return MakeError(ErrorReason::kDatasetInvalid,
                     absl::StrCat(counts.status().message(), "; datasets/", id,
                                  " was not kept, correct it and upload it again"));
  }

  dataset.ready = true;
  dataset.document_count = counts->documents;
  MILLRACE_RETURN_IF_ERROR(WriteFileAtomically(absl::StrCat(FolderOf(id), "/", kManifest),
                                               WriteDatasetManifest(dataset)));
  std::error_code ignored;
  fs::remove_all(absl::StrCat(FolderOf(id), "/parts"), ignored);
  {
    absl::MutexLock lock(&entry.mutex);
    entry.dataset = dataset;
  }
  return Snapshot(entry);
}

absl::StatusOr<Dataset> DatasetStore::Get(const std::string& id) const {
  MILLRACE_ASSIGN_OR_RETURN(const std::shared_ptr<Entry> entry, Find(id));
  return Snapshot(*entry);
}

std::vector<Dataset> DatasetStore::List(const std::string& after_id, int limit) const {
  std::vector<std::shared_ptr<Entry>> entries;
  {
    absl::MutexLock lock(&mutex_);
    for (auto it = entries_.upper_bound(after_id);
         it != entries_.end() && entries.size() < static_cast<size_t>(limit); ++it) {
      entries.push_back(it->second);
    }
  }
  std::vector<Dataset> datasets;
  for (const std::shared_ptr<Entry>& entry : entries) datasets.push_back(Snapshot(*entry));
  return datasets;
}

absl::Status DatasetStore::Delete(const std::string& id) {
  MILLRACE_ASSIGN_OR_RETURN(const std::shared_ptr<Entry> entry, Find(id));
  if (options_.jobs_using) {
    if (const std::vector<std::string> jobs = options_.jobs_using(id); !jobs.empty()) {
      return MakeError(ErrorReason::kInUse,
                       absl::StrCat("datasets/", id, " is needed by ", absl::StrJoin(jobs, ", "),
                                    "; cancel that job or wait until it has ended"));
    }
  }
  return Remove(id, entry);
}

absl::Status DatasetStore::Remove(const std::string& id, const std::shared_ptr<Entry>& entry) {
  // Its own name, for the one before of this id may not be gone yet.
  const std::string doomed =
      FolderOf(absl::StrCat(kDeleting, id, "-", absl::ToUnixNanos(absl::Now())));
  if (!entry->finalizing.TryLock()) {
    return MakeError(
        ErrorReason::kInUse,
        absl::StrCat("datasets/", id, " is being finalized or deleted; try again later"));
  }
  const absl::Status moved = [&]() -> absl::Status {
    entry->finalizing.AssertHeld();
    if (entry->removed) return NotFound(id);
    for (const auto& [path, slot] : entry->slots) slot->deleted = true;
    for (const auto& [path, slot] : entry->slots) absl::MutexLock until_left(&slot->mutex);
    absl::MutexLock removing(&folders_);
    if (std::rename(FolderOf(id).c_str(), doomed.c_str()) != 0) {
      const absl::Status status = ErrnoToStatus(errno, "remove", FolderOf(id));
      for (const auto& [path, slot] : entry->slots) slot->deleted = false;
      return status;
    }
    entry->removed = true;
    absl::MutexLock lock(&mutex_);
    entries_.erase(id);
    return absl::OkStatus();
  }();
  entry->finalizing.Unlock();
  MILLRACE_RETURN_IF_ERROR(moved);
  MILLRACE_RETURN_IF_ERROR(SyncFolder(options_.folder));
  std::error_code error;
  fs::remove_all(doomed, error);
  return error ? ErrnoToStatus(error.value(), "remove", doomed) : absl::OkStatus();
}

}  // namespace millrace
