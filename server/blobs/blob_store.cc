#include "server/blobs/blob_store.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <set>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "engine/base/file.h"
#include "engine/base/status_macros.h"
#include "server/base/errors.h"
#include "server/base/resource_names.h"
#include "server/blobs/blob_names.h"

namespace millrace {
namespace fs = std::filesystem;
namespace {

constexpr size_t kMostFiles = 10'000;
constexpr char kManifest[] = "manifest.json";
// Ids begin with a letter, so no blob is ever called this.
constexpr char kCreating[] = ".creating-";
constexpr char kDeleting[] = ".deleting-";

absl::Status MakeFolder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  return error ? ErrnoToStatus(error.value(), "create", path) : absl::OkStatus();
}

// A file whose last byte came just before a crash, or that has no bytes at all, was not yet moved
// into place.
absl::Status Complete(const std::shared_ptr<FileSlot>& slot, Disk* disk) {
  if (IsComplete(*slot)) return absl::OkStatus();
  const int64_t committed = CommittedBytes(*slot);
  if (committed < slot->declared.size_bytes) {
    return MakeError(ErrorReason::kUploadIncomplete,
                     absl::StrCat("file ", slot->declared.path, ": ", committed, " of ",
                                  slot->declared.size_bytes, " bytes are here; send the others"));
  }
  MILLRACE_ASSIGN_OR_RETURN(std::unique_ptr<FileUpload> upload,
                            FileUpload::Open(slot, committed, disk));
  return upload->Finish().status();
}

// Makes the names of all files, and of the folders between, last.
absl::Status SyncFolders(const std::string& files_folder, const std::vector<BlobFile>& files) {
  std::set<fs::path> folders = {files_folder};
  for (const BlobFile& file : files) {
    for (fs::path part = fs::path(file.path).parent_path(); !part.empty();
         part = part.parent_path()) {
      folders.insert(files_folder / part);
    }
  }
  for (const fs::path& folder : folders) MILLRACE_RETURN_IF_ERROR(SyncFolder(folder.string()));
  return absl::OkStatus();
}

}  // namespace

struct BlobStore::Entry {
  // Held throughout a finalization and a removal; taken before `mutex`.
  absl::Mutex finalizing;
  bool removed ABSL_GUARDED_BY(finalizing) = false;
  mutable absl::Mutex mutex;
  StoredBlob blob ABSL_GUARDED_BY(mutex);
  // By path; the map itself never changes.
  std::map<std::string, std::shared_ptr<FileSlot>> slots;
};

absl::Status BlobStore::Invalid(std::string field, std::string description) const {
  return MakeFieldError(options_.kind->invalid, {{std::move(field), std::move(description)}});
}

std::string BlobStore::NameOf(const std::string& id) const {
  return absl::StrCat(options_.kind->collection, "/", id);
}

absl::Status BlobStore::NotFound(const std::string& id) const {
  return MakeError(
      options_.kind->not_found,
      absl::StrCat("there is no ", options_.kind->noun, " ", NameOf(id), "; `millrace ",
                   options_.kind->collection, " list` lists those there are"));
}

absl::Status BlobStore::CheckDeclaration(const std::string& id,
                                         const std::vector<BlobFile>& files) const {
  MILLRACE_RETURN_IF_ERROR(CheckId(absl::StrCat(options_.kind->noun, "_id"), id));
  const std::string all = absl::StrCat(options_.kind->noun, ".files");
  if (files.empty()) return Invalid(all, "is empty; declare at least one file");
  if (files.size() > kMostFiles) {
    return Invalid(all, absl::StrCat(files.size(), " files are more than ", kMostFiles,
                                     "; put them together in fewer"));
  }
  std::set<std::string> paths;
  int64_t total_bytes = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    const BlobFile& file = files[i];
    const std::string field = absl::StrCat(all, "[", i, "]");
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
        return Invalid(all, absl::StrCat("`", path.substr(0, slash),
                                         "` is both a file and the folder of `", path, "`"));
      }
    }
  }
  if (total_bytes == 0) {
    return Invalid(all, absl::StrCat("all files are empty; ", options_.kind->nothing));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<BlobStore>> BlobStore::Open(Options options) {
  MILLRACE_RETURN_IF_ERROR(MakeFolder(options.folder));
  std::unique_ptr<BlobStore> store(new BlobStore(std::move(options)));
  MILLRACE_RETURN_IF_ERROR(store->Load());
  return store;
}

absl::Status BlobStore::Load() {
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
    absl::StatusOr<StoredBlob> blob = text.ok() ? ReadBlobManifest(*text, path) : text.status();
    if (!blob.ok()) {
      spdlog::warn("{} is left out: {}", NameOf(name), std::string(blob.status().message()));
      continue;
    }
    blob->id = name;
    entries_[name] = MakeEntry(*std::move(blob));
  }
  return absl::OkStatus();
}

std::string BlobStore::FolderOf(const std::string& id) const {
  return absl::StrCat(options_.folder, "/", id);
}

std::string BlobStore::FilesFolder(const std::string& id) const {
  return absl::StrCat(FolderOf(id), "/files");
}

std::shared_ptr<BlobStore::Entry> BlobStore::MakeEntry(StoredBlob blob) const {
  auto entry = std::make_shared<Entry>();
  for (const BlobFile& file : blob.files) {
    auto slot = std::make_shared<FileSlot>();
    slot->kind = options_.kind;
    slot->declared = file;
    slot->part_path = absl::StrCat(FolderOf(blob.id), "/parts/", file.path);
    slot->final_path = absl::StrCat(FilesFolder(blob.id), "/", file.path);
    entry->slots.emplace(file.path, std::move(slot));
  }
  absl::MutexLock lock(&entry->mutex);
  entry->blob = std::move(blob);
  return entry;
}

absl::StatusOr<std::shared_ptr<BlobStore::Entry>> BlobStore::Find(const std::string& id) const {
  absl::MutexLock lock(&mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end()) return NotFound(id);
  return found->second;
}

StoredBlob BlobStore::Snapshot(const Entry& entry) {
  absl::MutexLock lock(&entry.mutex);
  StoredBlob blob = entry.blob;
  for (BlobFile& file : blob.files) {
    file.committed_bytes =
        blob.ready ? file.size_bytes : CommittedBytes(*entry.slots.at(file.path));
  }
  return blob;
}

int64_t BlobStore::OutstandingBytes() const {
  std::vector<std::shared_ptr<Entry>> entries;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [id, entry] : entries_) entries.push_back(entry);
  }
  int64_t bytes = 0;
  for (const std::shared_ptr<Entry>& entry : entries) {
    {
      absl::MutexLock lock(&entry->mutex);
      if (entry->blob.ready) continue;
    }
    for (const auto& [path, slot] : entry->slots) {
      bytes += slot->declared.size_bytes - CommittedBytes(*slot);
    }
  }
  return bytes;
}

absl::StatusOr<std::optional<StoredBlob>> BlobStore::FindSame(const StoredBlob& wanted) const {
  if (const absl::StatusOr<std::shared_ptr<Entry>> found = Find(wanted.id); found.ok()) {
    StoredBlob there = Snapshot(**found);
    if (there.files == wanted.files && (!wanted.ready || there.facts == wanted.facts)) return there;
    return MakeError(ErrorReason::kIdTaken,
                     absl::StrCat(NameOf(wanted.id), " is there already with other files; choose ",
                                  "another id, or remove it with `millrace ",
                                  options_.kind->collection, " delete ", wanted.id, "` first"));
  }
  std::error_code ignored;
  if (fs::exists(FolderOf(wanted.id), ignored)) {
    return MakeError(ErrorReason::kIdTaken,
                     absl::StrCat(NameOf(wanted.id), " was left out as damaged when the daemon ",
                                  "started; choose another id, or remove ", FolderOf(wanted.id)));
  }
  return std::optional<StoredBlob>();
}

absl::Status BlobStore::CheckSpace(const StoredBlob& blob) const {
  MILLRACE_ASSIGN_OR_RETURN(const int64_t free_bytes, options_.disk->FreeBytes(options_.folder));
  int64_t outstanding_bytes = OutstandingBytes();
  if (options_.outstanding_elsewhere) outstanding_bytes += options_.outstanding_elsewhere();
  if (blob.size_bytes <= free_bytes - outstanding_bytes) return absl::OkStatus();
  return MakeError(ErrorReason::kDiskFull,
                   absl::StrCat(NameOf(blob.id), " needs ", blob.size_bytes, " bytes; ", free_bytes,
                                " are free on the disk of ", options_.folder, ", of which ",
                                outstanding_bytes, " are for uploads under way; free some space"));
}

absl::StatusOr<StoredBlob> BlobStore::Place(StoredBlob blob, const std::string& content) {
  blob.create_time = absl::Now();
  const std::string id = blob.id;
  const std::string fresh = FolderOf(absl::StrCat(kCreating, id));
  std::error_code ignored;
  fs::remove_all(fresh, ignored);
  MILLRACE_RETURN_IF_ERROR(MakeFolder(fresh));
  auto drop = absl::MakeCleanup([&] { fs::remove_all(fresh, ignored); });
  if (!content.empty() &&
      std::rename(content.c_str(), absl::StrCat(fresh, "/files").c_str()) != 0) {
    return ErrnoToStatus(errno, "move into place", content);
  }
  MILLRACE_RETURN_IF_ERROR(
      WriteFileAtomically(absl::StrCat(fresh, "/", kManifest), WriteManifest(blob)));
  if (std::rename(fresh.c_str(), FolderOf(id).c_str()) != 0) {
    return ErrnoToStatus(errno, "move into place", fresh);
  }
  std::move(drop).Cancel();
  const std::shared_ptr<Entry> entry = MakeEntry(std::move(blob));
  {
    absl::MutexLock lock(&mutex_);
    entries_[id] = entry;
  }
  MILLRACE_RETURN_IF_ERROR(SyncFolder(options_.folder));
  return Snapshot(*entry);
}

absl::StatusOr<StoredBlob> BlobStore::Create(const std::string& id, std::vector<BlobFile> files) {
  MILLRACE_RETURN_IF_ERROR(CheckDeclaration(id, files));
  std::sort(files.begin(), files.end(),
            [](const BlobFile& a, const BlobFile& b) { return a.path < b.path; });
  StoredBlob blob;
  blob.id = id;
  for (BlobFile& file : files) {
    file.committed_bytes = 0;
    blob.size_bytes += file.size_bytes;
  }
  blob.files = std::move(files);

  absl::MutexLock creating(&folders_);
  MILLRACE_ASSIGN_OR_RETURN(std::optional<StoredBlob> there, FindSame(blob));
  if (there) return *std::move(there);
  MILLRACE_RETURN_IF_ERROR(CheckSpace(blob));
  return Place(std::move(blob), /*content=*/"");
}

absl::StatusOr<StoredBlob> BlobStore::Add(const std::string& id, std::vector<BlobFile> files,
                                          nlohmann::ordered_json facts, const std::string& folder) {
  MILLRACE_RETURN_IF_ERROR(CheckId(absl::StrCat(options_.kind->noun, "_id"), id));
  StoredBlob blob;
  blob.id = id;
  blob.ready = true;
  for (const BlobFile& file : files) blob.size_bytes += file.size_bytes;
  blob.files = std::move(files);
  blob.facts = std::move(facts);
  absl::MutexLock creating(&folders_);
  MILLRACE_ASSIGN_OR_RETURN(std::optional<StoredBlob> there, FindSame(blob));
  if (there) return *std::move(there);
  return Place(std::move(blob), folder);
}

absl::Status BlobStore::CheckFree(const std::string& id) const {
  MILLRACE_RETURN_IF_ERROR(CheckId(absl::StrCat(options_.kind->noun, "_id"), id));
  StoredBlob none;  // has no files, unlike any that is there
  none.id = id;
  absl::MutexLock lock(&folders_);
  return FindSame(none).status();
}

absl::StatusOr<std::unique_ptr<FileUpload>> BlobStore::OpenUpload(const std::string& id,
                                                                  const std::string& path,
                                                                  int64_t offset) {
  MILLRACE_ASSIGN_OR_RETURN(const std::shared_ptr<Entry> entry, Find(id));
  const auto slot = entry->slots.find(path);
  if (slot == entry->slots.end()) {
    return MakeError(ErrorReason::kFileNotFound,
                     absl::StrCat(NameOf(id), " declares no file `", path, "`"));
  }
  return FileUpload::Open(slot->second, offset, options_.disk);
}

absl::StatusOr<StoredBlob> BlobStore::Finalize(const std::string& id) {
  MILLRACE_ASSIGN_OR_RETURN(const std::shared_ptr<Entry> entry, Find(id));
  absl::StatusOr<StoredBlob> blob = FinalizeEntry(id, *entry);
  // Where it cannot be removed it stays UPLOADING, and whoever declares it again is told so.
  if (absl::IsInvalidArgument(blob.status())) Remove(id, entry).IgnoreError();
  return blob;
}

absl::StatusOr<StoredBlob> BlobStore::FinalizeEntry(const std::string& id, Entry& entry) {
  absl::MutexLock finalizing(&entry.finalizing);
  if (entry.removed) return NotFound(id);
  StoredBlob blob = Snapshot(entry);
  if (blob.ready) return blob;

  for (const auto& [path, slot] : entry.slots) {
    MILLRACE_RETURN_IF_ERROR(Complete(slot, options_.disk));
  }
  MILLRACE_RETURN_IF_ERROR(SyncFolders(FilesFolder(id), blob.files));
  absl::StatusOr<nlohmann::ordered_json> facts = options_.inspect(FilesFolder(id));
  if (absl::IsInvalidArgument(facts.status())) {
    const std::string message = absl::StrCat(facts.status().message(), "; ", NameOf(id),
                                             " was not kept, correct it and upload it again");
    if (ReasonOf(facts.status()).empty()) return MakeError(options_.kind->invalid, message);
    return WithMessage(facts.status(), message);
  }
  if (!facts.ok()) return facts.status();

  blob.ready = true;
  blob.facts = *std::move(facts);
  MILLRACE_RETURN_IF_ERROR(
      WriteFileAtomically(absl::StrCat(FolderOf(id), "/", kManifest), WriteManifest(blob)));
  std::error_code ignored;
  fs::remove_all(absl::StrCat(FolderOf(id), "/parts"), ignored);
  {
    absl::MutexLock lock(&entry.mutex);
    entry.blob = blob;
  }
  return Snapshot(entry);
}

absl::StatusOr<StoredBlob> BlobStore::Get(const std::string& id) const {
  MILLRACE_ASSIGN_OR_RETURN(const std::shared_ptr<Entry> entry, Find(id));
  return Snapshot(*entry);
}

std::vector<StoredBlob> BlobStore::List(const std::string& after_id, int limit) const {
  std::vector<std::shared_ptr<Entry>> entries;
  {
    absl::MutexLock lock(&mutex_);
    for (auto it = entries_.upper_bound(after_id);
         it != entries_.end() && entries.size() < static_cast<size_t>(limit); ++it) {
      entries.push_back(it->second);
    }
  }
  std::vector<StoredBlob> blobs;
  for (const std::shared_ptr<Entry>& entry : entries) blobs.push_back(Snapshot(*entry));
  return blobs;
}

absl::Status BlobStore::Delete(const std::string& id) {
  MILLRACE_ASSIGN_OR_RETURN(const std::shared_ptr<Entry> entry, Find(id));
  if (options_.jobs_using) {
    if (const std::vector<std::string> jobs = options_.jobs_using(id); !jobs.empty()) {
      return MakeError(ErrorReason::kInUse,
                       absl::StrCat(NameOf(id), " is needed by ", absl::StrJoin(jobs, ", "),
                                    "; cancel that job or wait until it has ended"));
    }
  }
  return Remove(id, entry);
}

absl::Status BlobStore::Remove(const std::string& id, const std::shared_ptr<Entry>& entry) {
  // Its own name, for the one before of this id may not be gone yet.
  const std::string doomed =
      FolderOf(absl::StrCat(kDeleting, id, "-", absl::ToUnixNanos(absl::Now())));
  if (!entry->finalizing.TryLock()) {
    return MakeError(ErrorReason::kInUse,
                     absl::StrCat(NameOf(id), " is being finalized or deleted; try again later"));
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
