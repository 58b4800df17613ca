#include "engine/model/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/float16.h"
#include "engine/base/status_macros.h"

namespace millrace {
namespace {

constexpr int64_t kLengthBytes = 8;
constexpr int64_t kMostHeaderBytes = 100'000'000;     // the reference implementation's limit
constexpr int64_t kChunkElements = int64_t{1} << 16;  // stays in the cache

// Reads all of [offset, offset + bytes).
absl::Status ReadAt(int fd, const std::string& path, int64_t offset, char* out, int64_t bytes) {
  while (bytes > 0) {
    const ssize_t count = pread(fd, out, static_cast<size_t>(bytes), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return ErrnoToStatus(errno, "read", path);
    if (count == 0) return absl::DataLossError(absl::StrCat(path, " became shorter while read"));
    out += count;
    offset += count;
    bytes -= count;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SafetensorsReader> SafetensorsReader::Open(const std::string& path) {
  SafetensorsReader reader;
  reader.path_ = path;
  // O_NONBLOCK: a pipe is refused, not waited for.
  reader.fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (reader.fd_ < 0) return ErrnoToStatus(errno, "open", path);
  struct stat status;
  if (fstat(reader.fd_, &status) != 0) return ErrnoToStatus(errno, "read", path);
  if (!S_ISREG(status.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is no regular file"));
  }
  posix_fadvise(reader.fd_, 0, 0, POSIX_FADV_SEQUENTIAL);
  const int64_t file_bytes = status.st_size;
  uint64_t header_bytes = 0;
  if (file_bytes < kLengthBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": is no safetensors file: it has ", file_bytes, " bytes"));
  }
  MILLRACE_RETURN_IF_ERROR(
      ReadAt(reader.fd_, path, 0, reinterpret_cast<char*>(&header_bytes), kLengthBytes));
  const int64_t most = std::min(kMostHeaderBytes, file_bytes - kLengthBytes);
  if (header_bytes > static_cast<uint64_t>(most)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": says that its header has ", header_bytes, " bytes; at most ", most,
                     " can be: it is no safetensors file, or damaged"));
  }
  std::string header(header_bytes, '\0');
  MILLRACE_RETURN_IF_ERROR(
      ReadAt(reader.fd_, path, kLengthBytes, header.data(), static_cast<int64_t>(header_bytes)));
  const int64_t data_offset = kLengthBytes + static_cast<int64_t>(header_bytes);
  absl::StatusOr<SafetensorsEntries> tensors =
      ParseSafetensorsHeader(header, data_offset, file_bytes - data_offset);
  if (!tensors.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", tensors.status().message()));
  }
  reader.tensors_ = *std::move(tensors);
  return reader;
}

SafetensorsReader::SafetensorsReader(SafetensorsReader&& other) noexcept {
  *this = std::move(other);
}

SafetensorsReader& SafetensorsReader::operator=(SafetensorsReader&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(tensors_, other.tensors_);
  return *this;
}

SafetensorsReader::~SafetensorsReader() {
  if (fd_ >= 0) close(fd_);
}

absl::Status SafetensorsReader::Read(const SafetensorsEntry& entry, int64_t first,
                                     absl::Span<float> out) const {
  if (entry.dtype == FileDType::kOther) {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": tensor \"", entry.name,
                                                   "\" has a type that is none of F32, F16, BF16"));
  }
  const int64_t element = SizeOf(entry.dtype);
  int64_t offset = entry.offset_bytes + first * element;
  if (entry.dtype == FileDType::kF32) {
    return ReadAt(fd_, path_, offset, reinterpret_cast<char*>(out.data()), out.size() * element);
  }
  std::vector<uint16_t> chunk(std::min<int64_t>(kChunkElements, out.size()));
  while (!out.empty()) {
    const int64_t count = std::min<int64_t>(chunk.size(), out.size());
    MILLRACE_RETURN_IF_ERROR(
        ReadAt(fd_, path_, offset, reinterpret_cast<char*>(chunk.data()), count * element));
    for (int64_t i = 0; i < count; ++i) {
      out[i] = entry.dtype == FileDType::kBF16 ? BFloat16{chunk[i]}.ToFloat()
                                               : Float16{chunk[i]}.ToFloat();
    }
    out.remove_prefix(count);
    offset += count * element;
  }
  return absl::OkStatus();
}

absl::Status SafetensorsReader::Read(const SafetensorsEntry& entry, int64_t first,
                                     absl::Span<BFloat16> out) const {
  if (entry.dtype != FileDType::kBF16) {
    return absl::InternalError(absl::StrCat(path_, ": tensor \"", entry.name, "\" is not BF16"));
  }
  return ReadAt(fd_, path_, entry.offset_bytes + first * 2, reinterpret_cast<char*>(out.data()),
                static_cast<int64_t>(out.size()) * 2);
}

absl::StatusOr<SafetensorsWriter> SafetensorsWriter::Create(
    const std::string& path, const std::vector<SafetensorsEntry>& entries) {
  int64_t end = 0;
  for (const SafetensorsEntry& entry : entries) end += entry.count() * SizeOf(entry.dtype);
  std::string text = WriteSafetensorsHeader(entries);
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the data begins aligned
  const uint64_t length = text.size();
  MILLRACE_ASSIGN_OR_RETURN(FileWriter writer, FileWriter::Create(path));
  MILLRACE_RETURN_IF_ERROR(
      writer.Append(absl::string_view(reinterpret_cast<const char*>(&length), kLengthBytes)));
  MILLRACE_RETURN_IF_ERROR(writer.Append(text));
  return SafetensorsWriter(std::move(writer), kLengthBytes + static_cast<int64_t>(length) + end);
}

absl::Status SafetensorsWriter::Finish() {
  if (writer_.size_bytes() != expected_bytes_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "a safetensors file got ", writer_.size_bytes(), " bytes instead of ", expected_bytes_));
  }
  return writer_.Finish();
}

}  // namespace millrace
