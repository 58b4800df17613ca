#include "engine/model/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/float16.h"
#include "engine/base/status_macros.h"
#include "nlohmann/json.hpp"

namespace millrace {
namespace {

using nlohmann::json;

constexpr int64_t kLengthBytes = 8;
constexpr int64_t kMostHeaderBytes = 100'000'000;  // the reference implementation's limit
constexpr int64_t kMostElements = int64_t{1} << 50;
constexpr int64_t kChunkElements = int64_t{1} << 18;
constexpr absl::string_view kMetadata = "__metadata__";

struct DTypeName {
  absl::string_view name;
  FileDType dtype;
  int64_t bits;
};

constexpr DTypeName kDTypeNames[] = {
    {"F32", FileDType::kF32, 32},      {"F16", FileDType::kF16, 16},
    {"BF16", FileDType::kBF16, 16},    {"F64", FileDType::kOther, 64},
    {"I64", FileDType::kOther, 64},    {"U64", FileDType::kOther, 64},
    {"I32", FileDType::kOther, 32},    {"U32", FileDType::kOther, 32},
    {"I16", FileDType::kOther, 16},    {"U16", FileDType::kOther, 16},
    {"I8", FileDType::kOther, 8},      {"U8", FileDType::kOther, 8},
    {"BOOL", FileDType::kOther, 8},    {"F8_E4M3", FileDType::kOther, 8},
    {"F8_E5M2", FileDType::kOther, 8},
};

const DTypeName* FindDType(const json& name) {
  if (!name.is_string()) return nullptr;
  for (const DTypeName& candidate : kDTypeNames) {
    if (candidate.name == name.get_ref<const std::string&>()) return &candidate;
  }
  return nullptr;
}

int64_t SizeOf(FileDType dtype) { return dtype == FileDType::kF32 ? 4 : 2; }

absl::string_view NameOf(FileDType dtype) {
  for (const DTypeName& candidate : kDTypeNames) {
    if (candidate.dtype == dtype) return candidate.name;
  }
  return "";
}

// A number of the header: whole, not negative, at most `most`; -1 for anything else.
int64_t ToCount(const json& value, int64_t most) {
  if (!value.is_number_unsigned()) return -1;
  const uint64_t number = value.get<uint64_t>();
  return number <= static_cast<uint64_t>(most) ? static_cast<int64_t>(number) : -1;
}

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

// Checks and keeps what one header says.
class HeaderParser {
 public:
  HeaderParser(const std::string& path, int64_t data_offset, int64_t data_bytes)
      : path_(path), data_offset_(data_offset), data_bytes_(data_bytes) {}

  absl::StatusOr<std::map<std::string, SafetensorsEntry>> Parse(const std::string& text) {
    std::set<std::string> names;
    std::string repeated;
    const auto see = [&](int depth, json::parse_event_t event, json& parsed) {
      if (event == json::parse_event_t::key && depth == 1) {
        const std::string& name = parsed.get_ref<const std::string&>();
        if (!names.insert(name).second) repeated = name;
      }
      return true;
    };
    const json header = json::parse(text, see, /*allow_exceptions=*/false);
    if (!header.is_object()) return Error("its header is not a JSON object");
    if (!repeated.empty()) return Error(absl::StrCat("tensor \"", repeated, "\" is there twice"));
    for (const auto& [name, value] : header.items()) {
      if (name == kMetadata) continue;
      MILLRACE_RETURN_IF_ERROR(ParseTensor(name, value));
    }
    MILLRACE_RETURN_IF_ERROR(CheckRanges());
    return std::move(tensors_);
  }

 private:
  struct Range {
    int64_t begin, end;
    const std::string* name;
  };

  absl::Status Error(absl::string_view message) const {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": ", message));
  }
  absl::Status TensorError(absl::string_view name, absl::string_view message) const {
    return Error(absl::StrCat("tensor \"", name, "\" ", message));
  }

  absl::Status ParseTensor(const std::string& name, const json& value) {
    if (!value.is_object() || !value.contains("dtype") || !value.contains("shape") ||
        !value.contains("data_offsets")) {
      return TensorError(name, "lacks one of dtype, shape, data_offsets");
    }
    const DTypeName* dtype = FindDType(value["dtype"]);
    if (!dtype) {
      return TensorError(name, absl::StrCat("has an unknown dtype ", value["dtype"].dump()));
    }
    SafetensorsEntry entry{name, dtype->dtype, {}, 0};
    const json& shape = value["shape"];
    if (!shape.is_array()) return TensorError(name, "has a shape that is not a list");
    int64_t count = 1;
    for (const json& extent : shape) {
      entry.shape.push_back(ToCount(extent, kMostElements));
      if (entry.shape.back() < 0 ||
          (entry.shape.back() > 0 && count > kMostElements / entry.shape.back())) {
        return TensorError(name, absl::StrCat("has an impossible shape ", shape.dump()));
      }
      count *= entry.shape.back();
    }
    const json& offsets = value["data_offsets"];
    if (!offsets.is_array() || offsets.size() != 2) {
      return TensorError(name, "has data_offsets that are not two numbers");
    }
    const int64_t begin = ToCount(offsets[0], data_bytes_), end = ToCount(offsets[1], data_bytes_);
    if (begin < 0 || end < begin) {
      return TensorError(name,
                         absl::StrCat("has data_offsets ", offsets.dump(), ", but the file has ",
                                      data_bytes_, " bytes of data: it is damaged or cut short"));
    }
    if (end - begin != count * dtype->bits / 8) {
      return TensorError(name, absl::StrCat("takes ", end - begin, " bytes, but ", dtype->name, " ",
                                            shape.dump(), " takes ", count * dtype->bits / 8));
    }
    entry.offset_bytes = data_offset_ + begin;
    const auto place = tensors_.emplace(name, std::move(entry)).first;
    ranges_.push_back({begin, end, &place->first});
    return absl::OkStatus();
  }

  // The format wants the tensors' bytes to be all of the data, each once.
  absl::Status CheckRanges() {
    std::sort(ranges_.begin(), ranges_.end(), [](const Range& a, const Range& b) {
      return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
    });
    int64_t end = 0;
    for (const Range& range : ranges_) {
      if (range.begin < end) return TensorError(*range.name, "overlaps another one");
      if (range.begin > end) {
        return TensorError(*range.name, absl::StrCat("follows ", range.begin - end,
                                                     " bytes that belong to no tensor"));
      }
      end = range.end;
    }
    if (end != data_bytes_) {
      return Error(
          absl::StrCat("it ends with ", data_bytes_ - end, " bytes that belong to no tensor"));
    }
    return absl::OkStatus();
  }

  const std::string& path_;
  int64_t data_offset_, data_bytes_;
  std::map<std::string, SafetensorsEntry> tensors_;
  std::vector<Range> ranges_;
};

}  // namespace

absl::StatusOr<SafetensorsReader> SafetensorsReader::Open(const std::string& path) {
  SafetensorsReader reader;
  reader.path_ = path;
  reader.fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (reader.fd_ < 0) return ErrnoToStatus(errno, "open", path);
  struct stat status;
  if (fstat(reader.fd_, &status) != 0) return ErrnoToStatus(errno, "read", path);
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
  MILLRACE_ASSIGN_OR_RETURN(
      reader.tensors_, HeaderParser(path, data_offset, file_bytes - data_offset).Parse(header));
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

absl::StatusOr<SafetensorsWriter> SafetensorsWriter::Create(
    const std::string& path, const std::vector<SafetensorsEntry>& entries) {
  nlohmann::ordered_json header;
  header[std::string(kMetadata)] = {{"format", "pt"}};
  int64_t end = 0;
  for (const SafetensorsEntry& entry : entries) {
    const int64_t begin = end;
    end += entry.count() * SizeOf(entry.dtype);
    nlohmann::ordered_json& tensor = header[entry.name];
    tensor["dtype"] = std::string(NameOf(entry.dtype));
    tensor["shape"] = entry.shape;
    tensor["data_offsets"] = {begin, end};
  }
  std::string text = header.dump();
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
