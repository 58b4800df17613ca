#include "engine/data/token_store.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/base/file.h"
#include "engine/base/status_macros.h"
#include "engine/data/documents.h"
#include "nlohmann/json.hpp"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kFormatVersion = 1;
constexpr int64_t kMostNarrowVocabulary = 65536;

std::string TokensPath(const std::string& folder) { return folder + "/tokens.bin"; }
std::string DocumentsPath(const std::string& folder) { return folder + "/documents.bin"; }
std::string ManifestPath(const std::string& folder) { return folder + "/manifest.json"; }

// What a store is made of: equal for equal stores.
json SourceOf(const std::vector<DocumentFile>& files, const Tokenizer& tokenizer) {
  json listed = json::array();
  for (const DocumentFile& file : files) {
    listed.push_back(
        {{"name", file.name}, {"size_bytes", file.size_bytes}, {"modified_ns", file.modified_ns}});
  }
  return {{"format", kFormatVersion},
          {"tokenizer", tokenizer.name()},
          {"vocab_size", tokenizer.vocab_size()},
          {"files", std::move(listed)}};
}

// The manifest of a whole store in `folder`; discarded (json::is_discarded) when there is none.
json ReadManifest(const std::string& folder) {
  const absl::StatusOr<std::string> text = ReadFile(ManifestPath(folder));
  if (!text.ok()) return json(json::value_t::discarded);
  return json::parse(*text, nullptr, /*allow_exceptions=*/false);
}

// The bytes of tokens or lengths as they lie on disk.
template <typename T>
absl::string_view BytesOf(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// Writes tokens in the width that the vocabulary needs.
class TokenWriter {
 public:
  TokenWriter(FileWriter file, bool wide) : file_(std::move(file)), wide_(wide) {}

  absl::Status Append(const std::vector<int32_t>& tokens) {
    count_ += tokens.size();
    if (wide_) return file_.Append(BytesOf(tokens));
    narrow_.assign(tokens.begin(), tokens.end());
    return file_.Append(BytesOf(narrow_));
  }
  uint64_t count() const { return count_; }
  FileWriter& file() { return file_; }

 private:
  FileWriter file_;
  bool wide_;
  uint64_t count_ = 0;
  std::vector<uint16_t> narrow_;
};

// Tokenizes `files` into `folder`, which is empty.
absl::Status Build(const std::vector<DocumentFile>& files, const Tokenizer& tokenizer,
                   const json& source, const std::string& folder, TokenStore::Progress progress) {
  const bool wide = tokenizer.vocab_size() > kMostNarrowVocabulary;
  MILLRACE_ASSIGN_OR_RETURN(FileWriter tokens_file, FileWriter::Create(TokensPath(folder)));
  MILLRACE_ASSIGN_OR_RETURN(FileWriter ends_file, FileWriter::Create(DocumentsPath(folder)));
  TokenWriter writer(std::move(tokens_file), wide);
  int64_t total_bytes = 0;
  for (const DocumentFile& file : files) total_bytes += file.size_bytes;

  DocumentReader reader(files);
  DocumentReader::Piece piece;
  std::vector<int32_t> tokens;
  std::vector<uint64_t> ends;
  int64_t documents = 0;
  bool begins_document = true;
  while (true) {
    MILLRACE_ASSIGN_OR_RETURN(const bool more, reader.Next(&piece));
    if (!more) break;
    tokens.clear();
    if (begins_document && tokenizer.begin_of_document()) {
      tokens.push_back(*tokenizer.begin_of_document());
    }
    begins_document = piece.ends_document;
    tokenizer.Encode(piece.text, &tokens);
    if (piece.ends_document) tokens.push_back(tokenizer.end_of_document());
    MILLRACE_RETURN_IF_ERROR(writer.Append(tokens));
    if (piece.ends_document) {
      ++documents;
      ends.push_back(writer.count());
    }
    if (ends.size() >= 65536) {
      MILLRACE_RETURN_IF_ERROR(ends_file.Append(BytesOf(ends)));
      ends.clear();
    }
    MILLRACE_RETURN_IF_ERROR(progress(reader.bytes_read(), total_bytes));
  }
  if (documents == 0) {
    return absl::InvalidArgumentError("the dataset has no text in it; add some");
  }
  MILLRACE_RETURN_IF_ERROR(ends_file.Append(BytesOf(ends)));
  MILLRACE_RETURN_IF_ERROR(ends_file.Finish());
  MILLRACE_RETURN_IF_ERROR(writer.file().Finish());

  const json manifest = {{"source", source},
                         {"tokens", writer.count()},
                         {"token_bytes", wide ? 4 : 2},
                         {"tokens_sha256", writer.file().sha256()},
                         {"documents", documents},
                         {"documents_sha256", ends_file.sha256()}};
  return WriteFileAtomically(ManifestPath(folder), manifest.dump(1));
}

absl::Status RemoveAll(const std::string& folder) {
  std::error_code error;
  fs::remove_all(folder, error);
  return error ? ErrnoToStatus(error.value(), "remove", folder) : absl::OkStatus();
}

absl::Status ReplaceFolder(const std::string& from, const std::string& to) {
  MILLRACE_RETURN_IF_ERROR(RemoveAll(to));
  if (std::rename(from.c_str(), to.c_str()) != 0) {
    return ErrnoToStatus(errno, "rename into place", to);
  }
  return SyncFolder(fs::path(to).parent_path().string());
}

}  // namespace

absl::StatusOr<TokenStore> TokenStore::Prepare(const std::string& dataset,
                                               const Tokenizer& tokenizer,
                                               const std::string& folder, Progress progress) {
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<DocumentFile> files, ListDocumentFiles(dataset));
  const json source = SourceOf(files, tokenizer);
  const json manifest = ReadManifest(folder);
  if (manifest.is_object() && manifest.value("source", json()) == source) {
    absl::StatusOr<TokenStore> store = Open(folder);
    if (store.ok()) return store;
  }
  const std::string temporary = folder + ".tmp";
  MILLRACE_RETURN_IF_ERROR(RemoveAll(temporary));
  MILLRACE_RETURN_IF_ERROR(MakeFolderDurably(temporary));
  absl::Status status = Build(files, tokenizer, source, temporary, progress);
  if (status.ok()) status = ReplaceFolder(temporary, folder);
  if (!status.ok()) {
    std::error_code error;
    fs::remove_all(temporary, error);
    return status;
  }
  return Open(folder);
}

absl::StatusOr<TokenStore::Map> TokenStore::MapFile(const std::string& path, uint64_t bytes) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return ErrnoToStatus(errno, "open", path);
  struct stat status;
  if (fstat(fd, &status) != 0 || static_cast<uint64_t>(status.st_size) != bytes) {
    close(fd);
    return absl::DataLossError(
        absl::StrCat(path, " is not the ", bytes, " bytes long that its manifest says"));
  }
  void* data = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  const int error = errno;
  close(fd);
  if (data == MAP_FAILED) return ErrnoToStatus(error, "map", path);
  return Map{data, bytes};
}

absl::StatusOr<TokenStore> TokenStore::Open(const std::string& folder) {
  const json manifest = ReadManifest(folder);
  TokenStore store;
  uint64_t tokens, token_bytes, documents;
  std::string hashes;
  try {
    tokens = manifest.at("tokens").get<uint64_t>();
    token_bytes = manifest.at("token_bytes").get<uint64_t>();
    documents = manifest.at("documents").get<uint64_t>();
    hashes = absl::StrCat(manifest.at("tokens_sha256").get<std::string>(),
                          manifest.at("documents_sha256").get<std::string>());
  } catch (const json::exception&) {
    return absl::DataLossError(absl::StrCat(ManifestPath(folder), " is not a token manifest"));
  }
  store.wide_ = token_bytes == 4;
  store.size_ = static_cast<int64_t>(tokens);
  MILLRACE_ASSIGN_OR_RETURN(store.tokens_, MapFile(TokensPath(folder), tokens * token_bytes));
  MILLRACE_ASSIGN_OR_RETURN(store.documents_,
                            MapFile(DocumentsPath(folder), documents * sizeof(uint64_t)));
  store.document_ends_ =
      absl::MakeConstSpan(static_cast<const uint64_t*>(store.documents_.data), documents);
  Sha256 hash;
  hash.Update(hashes);
  store.sha256_ = hash.Finish();
  return store;
}

TokenStore::TokenStore(TokenStore&& other) noexcept { *this = std::move(other); }

TokenStore& TokenStore::operator=(TokenStore&& other) noexcept {
  std::swap(tokens_, other.tokens_);
  std::swap(documents_, other.documents_);
  std::swap(wide_, other.wide_);
  std::swap(size_, other.size_);
  std::swap(document_ends_, other.document_ends_);
  std::swap(sha256_, other.sha256_);
  return *this;
}

TokenStore::~TokenStore() {
  for (const Map& map : {tokens_, documents_}) {
    if (map.data) munmap(const_cast<void*>(map.data), map.bytes);
  }
}

void TokenStore::Read(int64_t first, absl::Span<int32_t> out) const {
  if (wide_) {
    const auto* tokens = static_cast<const int32_t*>(tokens_.data) + first;
    std::copy(tokens, tokens + out.size(), out.begin());
  } else {
    const auto* tokens = static_cast<const uint16_t*>(tokens_.data) + first;
    std::copy(tokens, tokens + out.size(), out.begin());
  }
}

}  // namespace millrace
