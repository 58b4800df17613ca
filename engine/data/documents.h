// Reading a dataset as documents of UTF-8 text, in bounded memory.
//
// A dataset is a file or a folder. A folder is read recursively in the order of its relative paths
// (byte-wise); what begins with a dot is left out. A file that ends in .jsonl holds one document a
// line, an object with a string `text` (at most 64 MiB a line); any other file is one document.
// Empty documents and empty lines are left out, and so is a byte order mark at the begin of a file.
#ifndef MILLRACE_ENGINE_DATA_DOCUMENTS_H_
#define MILLRACE_ENGINE_DATA_DOCUMENTS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace millrace {

struct DocumentFile {
  std::string path;
  std::string name;  // relative to the dataset; the file's name where the dataset is one file
  int64_t size_bytes = 0;
  int64_t modified_ns = 0;  // since the epoch
};

// NOT_FOUND when there is nothing at `path`; INVALID_ARGUMENT when a folder holds no files.
absl::StatusOr<std::vector<DocumentFile>> ListDocumentFiles(const std::string& path);

// Reads documents one after the other, long ones in pieces.
class DocumentReader {
 public:
  struct Piece {
    std::string text;            // at most about 1 MiB, cut after a line or word where there is one
    bool ends_document = false;  // the next piece is another document's
  };

  explicit DocumentReader(std::vector<DocumentFile> files);
  ~DocumentReader();
  DocumentReader(DocumentReader&&) noexcept;

  // False after the last piece. INVALID_ARGUMENT "NAME:LINE: …" or "NAME: … at byte N" when the
  // content is not text: binary (a NUL byte), not UTF-8, a line that is not a JSON object with a
  // string `text`.
  absl::StatusOr<bool> Next(Piece* piece);

  // Bytes of files read so far.
  int64_t bytes_read() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

struct DocumentCounts {
  int64_t documents = 0;
  int64_t bytes = 0;  // of text
};

// Reads all of the dataset at `path`, with the errors of ListDocumentFiles and DocumentReader, and
// INVALID_ARGUMENT when there is no document in it.
absl::StatusOr<DocumentCounts> CheckDocuments(const std::string& path);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_DATA_DOCUMENTS_H_
