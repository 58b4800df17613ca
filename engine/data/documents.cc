#include "engine/data/documents.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "engine/base/file.h"
#include "engine/base/status_macros.h"
#include "engine/data/utf8.h"
#include "nlohmann/json.hpp"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr size_t kPieceBytes = size_t{1} << 20;
constexpr size_t kReadBytes = size_t{256} << 10;
constexpr size_t kMostLineBytes = size_t{64} << 20;
constexpr absl::string_view kByteOrderMark = "\xef\xbb\xbf";

absl::StatusOr<DocumentFile> Describe(const fs::path& path, std::string name) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0) return ErrnoToStatus(errno, "read", path.string());
  return DocumentFile{path.string(), std::move(name), status.st_size,
                      status.st_mtim.tv_sec * int64_t{1'000'000'000} + status.st_mtim.tv_nsec};
}

// A file read from begin to end.
class Input {
 public:
  Input() = default;
  ~Input() { Close(); }
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;

  absl::Status Open(const std::string& path) {
    path_ = path;
    fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    return fd_ >= 0 ? absl::OkStatus() : ErrnoToStatus(errno, "open", path);
  }
  void Close() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }
  bool is_open() const { return fd_ >= 0; }

  // Adds some bytes to `buffer`; false at the end.
  absl::StatusOr<bool> Read(std::string* buffer) {
    const size_t begin = buffer->size();
    buffer->resize(begin + kReadBytes);
    ssize_t count;
    do {
      count = read(fd_, buffer->data() + begin, kReadBytes);
    } while (count < 0 && errno == EINTR);
    buffer->resize(begin + static_cast<size_t>(std::max<ssize_t>(count, 0)));
    if (count < 0) return ErrnoToStatus(errno, "read", path_);
    return count > 0;
  }

 private:
  std::string path_;
  int fd_ = -1;
};

// How much of `text` to give when at most `most` < text.size() bytes can be: up to the end of a
// line, else of a word, else of a character.
size_t CutAt(absl::string_view text, size_t most) {
  const absl::string_view head = text.substr(0, most);
  for (char separator : {'\n', ' '}) {
    const size_t found = head.rfind(separator);
    if (found != absl::string_view::npos && found >= most / 2) return found + 1;
  }
  return CharacterBoundary(text, most);
}

std::string NotText(absl::string_view text, size_t at) {
  const unsigned char byte = static_cast<unsigned char>(text[at]);
  return byte == 0 ? "is binary, not text: it has a NUL byte"
                   : absl::StrFormat("is not UTF-8 text: it has byte 0x%02x", byte);
}

absl::Status LineError(absl::string_view name, int64_t line, absl::string_view message) {
  return absl::InvalidArgumentError(absl::StrCat(name, ":", line, ": ", message));
}

// The `text` of one JSONL line.
absl::StatusOr<std::string> TextOfLine(absl::string_view line, absl::string_view name,
                                       int64_t number) {
  json value;
  try {
    value = json::parse(line.begin(), line.end());
  } catch (const json::parse_error& error) {
    return LineError(name, number,
                     absl::StrCat("is not valid JSON at column ", error.byte,
                                  "; each line must be an object with a string \"text\""));
  }
  if (!value.is_object()) {
    return LineError(name, number,
                     absl::StrCat("is JSON but no object (", value.type_name(),
                                  "); each line must be an object with a string \"text\""));
  }
  const auto text = value.find("text");
  if (text == value.end()) {
    return LineError(name, number, "has no field \"text\"; each line must have one");
  }
  if (!text->is_string()) {
    return LineError(name, number,
                     absl::StrCat("\"text\" is not a string (", text->type_name(), ")"));
  }
  std::string content = std::move(text->get_ref<std::string&>());
  if (const size_t bad = FirstNonTextByte(content); bad < content.size()) {
    return LineError(name, number, absl::StrCat("\"text\" ", NotText(content, bad)));
  }
  return content;
}

}  // namespace

absl::StatusOr<std::vector<DocumentFile>> ListDocumentFiles(const std::string& path) {
  std::vector<DocumentFile> files;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) {
    return absl::NotFoundError(absl::StrCat("there is no file or folder ", path));
  }
  if (error) return ErrnoToStatus(error.value(), "read", path);
  if (!fs::is_directory(status)) {
    MILLRACE_ASSIGN_OR_RETURN(DocumentFile file,
                              Describe(path, fs::path(path).filename().string()));
    files.push_back(std::move(file));
    return files;
  }
  fs::recursive_directory_iterator entry(path, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    if (absl::StartsWith(entry->path().filename().string(), ".")) {
      entry.disable_recursion_pending();
      continue;
    }
    std::error_code ignored;  // a link to nowhere is no file
    if (!entry->is_regular_file(ignored)) continue;
    MILLRACE_ASSIGN_OR_RETURN(
        DocumentFile file,
        Describe(entry->path(), entry->path().lexically_relative(path).generic_string()));
    files.push_back(std::move(file));
  }
  if (error) return ErrnoToStatus(error.value(), "read folder", path);
  if (files.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " holds no files; add text files or .jsonl files"));
  }
  std::sort(files.begin(), files.end(),
            [](const DocumentFile& a, const DocumentFile& b) { return a.name < b.name; });
  return files;
}

struct DocumentReader::State {
  std::vector<DocumentFile> files;
  size_t next_file = 0;
  Input input;            // of the file before next_file, while open
  bool lines = false;     // that file is JSONL
  bool at_begin = false;  // nothing of it has been looked at
  bool at_end = false;    // nothing of it is left to be read
  std::string buffer;     // read from it and not yet given
  int64_t offset = 0;     // of the buffer's first byte in the file
  int64_t line = 0;       // the line read last
  std::string document;   // JSONL: the rest of the current document
  size_t consumed = 0;    // JSONL: bytes at the buffer's begin that are done with
  int64_t bytes_read = 0;

  const std::string& name() const { return files[next_file - 1].name; }

  absl::Status OpenNextFile() {
    const DocumentFile& file = files[next_file++];
    lines = absl::EndsWith(file.name, ".jsonl");
    at_begin = true;
    at_end = false;
    buffer.clear();
    offset = line = 0;
    consumed = 0;
    return input.Open(file.path);
  }

  absl::Status Fill() {
    const size_t before = buffer.size();
    MILLRACE_ASSIGN_OR_RETURN(const bool more, input.Read(&buffer));
    bytes_read += static_cast<int64_t>(buffer.size() - before);
    at_end = !more;
    if (at_begin && (at_end || buffer.size() >= kByteOrderMark.size())) {
      at_begin = false;
      if (absl::StartsWith(buffer, kByteOrderMark)) {
        buffer.erase(0, kByteOrderMark.size());
        offset += static_cast<int64_t>(kByteOrderMark.size());
      }
    }
    return absl::OkStatus();
  }

  // The next piece of the open text file; false when nothing is left of it.
  absl::StatusOr<bool> NextOfText(Piece* piece) {
    while (!at_end && buffer.size() <= kPieceBytes) MILLRACE_RETURN_IF_ERROR(Fill());
    if (buffer.empty()) return false;
    const size_t size = buffer.size() <= kPieceBytes ? buffer.size() : CutAt(buffer, kPieceBytes);
    piece->text.assign(buffer, 0, size);
    piece->ends_document = size == buffer.size();
    if (const size_t bad = FirstNonTextByte(piece->text); bad < size) {
      return absl::InvalidArgumentError(
          absl::StrCat(name(), ": ", NotText(piece->text, bad), " at byte ",
                       offset + static_cast<int64_t>(bad), "; convert it or leave it out"));
    }
    buffer.erase(0, size);
    offset += static_cast<int64_t>(size);
    return true;
  }

  // The next line of the open JSONL file, without its end; false when there is none.
  absl::StatusOr<bool> NextLine(absl::string_view* text) {
    size_t end;
    size_t searched = consumed;
    while ((end = buffer.find('\n', searched)) == std::string::npos && !at_end) {
      buffer.erase(0, consumed);
      consumed = 0;
      searched = buffer.size();
      if (buffer.size() > kMostLineBytes) {
        return LineError(name(), line + 1,
                         absl::StrCat("is longer than ", kMostLineBytes >> 20, " MiB"));
      }
      // The byte order mark may go away, so what is searched may begin earlier.
      if (at_begin) searched = 0;
      MILLRACE_RETURN_IF_ERROR(Fill());
    }
    if (end == std::string::npos) end = buffer.size();
    if (consumed >= buffer.size()) return false;
    *text = absl::string_view(buffer).substr(consumed, end - consumed);
    consumed = std::min(end + 1, buffer.size());
    ++line;
    return true;
  }

  // The next piece of the open JSONL file; false when nothing is left of it.
  absl::StatusOr<bool> NextOfLines(Piece* piece) {
    while (document.empty()) {
      absl::string_view text;
      MILLRACE_ASSIGN_OR_RETURN(const bool more, NextLine(&text));
      if (!more) return false;
      if (absl::StripAsciiWhitespace(text).empty()) continue;
      MILLRACE_ASSIGN_OR_RETURN(document, TextOfLine(text, name(), line));
    }
    const size_t size =
        document.size() <= kPieceBytes ? document.size() : CutAt(document, kPieceBytes);
    piece->text.assign(document, 0, size);
    piece->ends_document = size == document.size();
    document.erase(0, size);
    return true;
  }
};

DocumentReader::DocumentReader(std::vector<DocumentFile> files)
    : state_(std::make_unique<State>()) {
  state_->files = std::move(files);
}
DocumentReader::~DocumentReader() = default;
DocumentReader::DocumentReader(DocumentReader&&) noexcept = default;

int64_t DocumentReader::bytes_read() const { return state_->bytes_read; }

absl::StatusOr<bool> DocumentReader::Next(Piece* piece) {
  State& state = *state_;
  while (true) {
    if (state.input.is_open()) {
      MILLRACE_ASSIGN_OR_RETURN(const bool found,
                                state.lines ? state.NextOfLines(piece) : state.NextOfText(piece));
      if (found) return true;
      state.input.Close();
    }
    if (state.next_file == state.files.size()) return false;
    MILLRACE_RETURN_IF_ERROR(state.OpenNextFile());
  }
}

absl::StatusOr<DocumentCounts> CheckDocuments(const std::string& path) {
  MILLRACE_ASSIGN_OR_RETURN(std::vector<DocumentFile> files, ListDocumentFiles(path));
  const size_t file_count = files.size();
  const std::string first = files.front().name;
  DocumentReader reader(std::move(files));
  DocumentCounts counts;
  DocumentReader::Piece piece;
  while (true) {
    MILLRACE_ASSIGN_OR_RETURN(const bool more, reader.Next(&piece));
    if (!more) break;
    counts.documents += piece.ends_document;
    counts.bytes += static_cast<int64_t>(piece.text.size());
  }
  if (counts.documents == 0) {
    return absl::InvalidArgumentError(
        file_count == 1
            ? absl::StrCat(first, ": is empty; a dataset needs some text")
            : absl::StrCat("all ", file_count, " files are empty; a dataset needs some text"));
  }
  return counts;
}

}  // namespace millrace
