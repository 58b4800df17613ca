#include "engine/model/gguf_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/file.h"
#include "engine/base/status_macros.h"

namespace millrace {
namespace {

constexpr absl::string_view kMagic = "GGUF";
constexpr absl::string_view kAlignmentKey = "general.alignment";
constexpr int64_t kDefaultAlignment = 32;
constexpr int64_t kMostAlignment = int64_t{1} << 20;
constexpr int64_t kMostElements = int64_t{1} << 50;
// The format's own limits.
constexpr size_t kLongestKey = 65535, kLongestTensorName = 64;
constexpr uint32_t kMostDimensions = 4;
// The least that an entry can take, which bounds how many there can be.
constexpr uint64_t kLeastValueBytes = 8 + 4 + 1, kLeastTensorBytes = 8 + 4 + 8 + 4 + 8;

std::string Quoted(absl::string_view name) {
  constexpr size_t kMost = 100;
  return absl::StrCat("\"", absl::Utf8SafeCHexEscape(name.substr(0, kMost)),
                      name.size() > kMost ? "..." : "", "\"");
}

// Checks and keeps what one header says.
class HeaderParser {
 public:
  HeaderParser(const std::string& path, absl::string_view bytes,
               std::map<std::string, GgufValue, std::less<>>& metadata,
               std::map<std::string, GgufTensor, std::less<>>& tensors)
      : path_(path), bytes_(bytes), rest_(bytes), metadata_(metadata), tensors_(tensors) {}

  absl::Status Parse() {
    uint64_t tensors = 0, values = 0;
    MILLRACE_RETURN_IF_ERROR(ParseCounts(tensors, values));
    for (uint64_t i = 0; i < values; ++i) MILLRACE_RETURN_IF_ERROR(ParseValue(i));
    MILLRACE_RETURN_IF_ERROR(ParseAlignment());
    for (uint64_t i = 0; i < tensors; ++i) MILLRACE_RETURN_IF_ERROR(ParseTensor(i));
    return PlaceTensors();
  }

 private:
  absl::Status Error(absl::string_view message) const {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": ", message));
  }
  absl::Status KeyError(absl::string_view key, absl::string_view message) const {
    return Error(absl::StrCat("metadata ", Quoted(key), " ", message));
  }
  absl::Status TensorError(absl::string_view name, absl::string_view message) const {
    return Error(absl::StrCat("tensor ", Quoted(name), " ", message));
  }

  absl::Status ParseCounts(uint64_t& tensors, uint64_t& values) {
    if (rest_.substr(0, kMagic.size()) != kMagic) return Error("is no GGUF file");
    rest_.remove_prefix(kMagic.size());
    const std::optional<uint32_t> version = TakeGgufUint32(rest_);
    if (version && (*version == 0x02000000u || *version == 0x03000000u)) {
      return Error("is a big-endian GGUF file; convert it to little-endian");
    }
    if (version && *version != 2 && *version != 3) {
      return Error(absl::StrCat("has GGUF version ", *version, "; versions 2 and 3 are read"));
    }
    const std::optional<uint64_t> tensor_count = TakeGgufUint64(rest_);
    const std::optional<uint64_t> value_count = TakeGgufUint64(rest_);
    if (!version || !tensor_count || !value_count) return Error("is cut short in its header");
    if (*tensor_count > rest_.size() / kLeastTensorBytes ||
        *value_count > rest_.size() / kLeastValueBytes) {
      return Error(absl::StrCat("says that it has ", *tensor_count, " tensors and ", *value_count,
                                " metadata values, which ", bytes_.size(),
                                " bytes cannot hold: it is damaged or cut short"));
    }
    tensors = *tensor_count;
    values = *value_count;
    return absl::OkStatus();
  }

  absl::Status ParseValue(uint64_t index) {
    const std::optional<absl::string_view> key = TakeGgufString(rest_);
    if (!key || key->size() > kLongestKey) {
      return Error(absl::StrCat("has an impossible key of metadata value ", index));
    }
    const std::optional<uint32_t> type = TakeGgufUint32(rest_);
    std::optional<GgufValue> value;
    if (type) value = GgufValue::Take(*type, rest_);
    if (!value) return KeyError(*key, "is cut short or has an unknown type");
    if (!metadata_.emplace(std::string(*key), std::move(*value)).second) {
      return KeyError(*key, "is there twice");
    }
    return absl::OkStatus();
  }

  absl::Status ParseAlignment() {
    const auto place = metadata_.find(kAlignmentKey);
    if (place == metadata_.end()) return absl::OkStatus();
    const std::optional<int64_t> number = place->second.whole();
    if (!number || *number < 1 || *number > kMostAlignment ||
        !std::has_single_bit(static_cast<uint64_t>(*number))) {
      return KeyError(kAlignmentKey, "is no power of two up to 2^20");
    }
    alignment_ = *number;
    return absl::OkStatus();
  }

  absl::Status ParseTensor(uint64_t index) {
    const std::optional<absl::string_view> name = TakeGgufString(rest_);
    if (!name || name->size() > kLongestTensorName) {
      return Error(absl::StrCat("has an impossible name of tensor ", index));
    }
    const std::optional<uint32_t> dimensions = TakeGgufUint32(rest_);
    if (!dimensions) return TensorError(*name, "is cut short");
    if (*dimensions < 1 || *dimensions > kMostDimensions) {
      return TensorError(*name, absl::StrCat("has ", *dimensions, " dimensions"));
    }
    GgufTensor tensor;
    tensor.name = std::string(*name);
    int64_t count = 1;
    for (uint32_t i = 0; i < *dimensions; ++i) {
      const std::optional<uint64_t> extent = TakeGgufUint64(rest_);
      if (!extent) return TensorError(*name, "is cut short");
      if (*extent < 1 || *extent > static_cast<uint64_t>(kMostElements / count)) {
        return TensorError(*name, absl::StrCat("has an impossible extent ", *extent));
      }
      tensor.shape.push_back(static_cast<int64_t>(*extent));
      count *= tensor.shape.back();
    }
    const std::optional<uint32_t> type = TakeGgufUint32(rest_);
    const std::optional<uint64_t> offset = TakeGgufUint64(rest_);
    if (!type || !offset) return TensorError(*name, "is cut short");
    tensor.type = FindGgmlType(*type);
    if (!tensor.type) {
      return TensorError(
          *name, absl::StrCat("has ggml type ", *type, ", which is none of ", GgmlTypeNames()));
    }
    if (tensor.shape.front() % tensor.type->block_elements != 0) {
      return TensorError(
          *name, absl::StrCat("has rows of ", tensor.shape.front(), ", but ", tensor.type->name,
                              " comes in blocks of ", tensor.type->block_elements));
    }
    std::reverse(tensor.shape.begin(), tensor.shape.end());
    if (*offset > bytes_.size() || *offset % static_cast<uint64_t>(alignment_) != 0) {
      return TensorError(*name, absl::StrCat("has an impossible offset ", *offset));
    }
    tensor.offset_bytes = static_cast<int64_t>(*offset);  // from the data's begin, for now
    if (!tensors_.emplace(tensor.name, std::move(tensor)).second) {
      return TensorError(*name, "is there twice");
    }
    return absl::OkStatus();
  }

  // Makes offsets count from the file's begin.
  absl::Status PlaceTensors() {
    const int64_t size = static_cast<int64_t>(bytes_.size());
    const int64_t header = size - static_cast<int64_t>(rest_.size());
    const int64_t data = (header + alignment_ - 1) / alignment_ * alignment_;
    std::vector<const GgufTensor*> order;
    for (auto& [name, tensor] : tensors_) {
      tensor.offset_bytes += data;
      if (tensor.offset_bytes > size || tensor.size_bytes() > size - tensor.offset_bytes) {
        return TensorError(
            name, absl::StrCat("ends at byte ", tensor.offset_bytes + tensor.size_bytes(),
                               ", but the file has ", size, ": it is damaged or cut short"));
      }
      order.push_back(&tensor);
    }
    std::sort(order.begin(), order.end(), [](const GgufTensor* a, const GgufTensor* b) {
      return a->offset_bytes < b->offset_bytes;
    });
    for (size_t i = 1; i < order.size(); ++i) {
      if (order[i]->offset_bytes < order[i - 1]->offset_bytes + order[i - 1]->size_bytes()) {
        return TensorError(order[i]->name,
                           absl::StrCat("overlaps tensor ", Quoted(order[i - 1]->name)));
      }
    }
    return absl::OkStatus();
  }

  const std::string& path_;
  absl::string_view bytes_, rest_;
  std::map<std::string, GgufValue, std::less<>>& metadata_;
  std::map<std::string, GgufTensor, std::less<>>& tensors_;
  int64_t alignment_ = kDefaultAlignment;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const GgufFile>> GgufFile::Open(const std::string& path) {
  std::shared_ptr<GgufFile> file(new GgufFile(path));
  MILLRACE_RETURN_IF_ERROR(file->Map());
  const absl::string_view bytes(file->bytes_, static_cast<size_t>(file->size_bytes_));
  MILLRACE_RETURN_IF_ERROR(HeaderParser(path, bytes, file->metadata_, file->tensors_).Parse());
  return file;
}

absl::Status GgufFile::Map() {
  const int fd = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return ErrnoToStatus(errno, "open", path_);
  struct stat status;
  absl::Status result;
  if (fstat(fd, &status) != 0) {
    result = ErrnoToStatus(errno, "read", path_);
  } else if (!S_ISREG(status.st_mode) || status.st_size == 0) {
    result = absl::InvalidArgumentError(absl::StrCat(path_, ": is no GGUF file"));
  } else {
    void* mapped =
        mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
    if (mapped == MAP_FAILED) {
      result = ErrnoToStatus(errno, "map", path_);
    } else {
      bytes_ = static_cast<const char*>(mapped);
      size_bytes_ = status.st_size;
    }
  }
  close(fd);
  return result;
}

GgufFile::~GgufFile() {
  if (bytes_) munmap(const_cast<char*>(bytes_), static_cast<size_t>(size_bytes_));
}

const GgufValue* GgufFile::FindValue(absl::string_view key) const {
  const auto place = metadata_.find(key);
  return place == metadata_.end() ? nullptr : &place->second;
}

const GgufTensor* GgufFile::FindTensor(absl::string_view name) const {
  const auto place = tensors_.find(name);
  return place == tensors_.end() ? nullptr : &place->second;
}

absl::Status GgufFile::Read(const GgufTensor& tensor, int64_t first, absl::Span<float> out) const {
  const int64_t count = tensor.count();
  if (first < 0 || first > count || static_cast<int64_t>(out.size()) > count - first) {
    return absl::OutOfRangeError(absl::StrCat(path_, ": tensor ", Quoted(tensor.name), " has ",
                                              count, " elements; ", out.size(), " from ", first,
                                              " on were asked for"));
  }
  const GgmlTypeInfo& type = *tensor.type;
  const int64_t block = type.block_elements;
  const uint8_t* bytes = reinterpret_cast<const uint8_t*>(bytes_) + tensor.offset_bytes;
  float whole[kMostBlockElements];
  while (!out.empty()) {
    const int64_t index = first / block, within = first % block;
    int64_t taken = static_cast<int64_t>(out.size()) / block * block;
    if (within == 0 && taken > 0) {
      type.decode(bytes + index * type.block_bytes, taken / block, out.data());
    } else {
      type.decode(bytes + index * type.block_bytes, 1, whole);
      taken = std::min<int64_t>(block - within, out.size());
      std::copy_n(whole + within, taken, out.data());
    }
    out.remove_prefix(taken);
    first += taken;
  }
  return absl::OkStatus();
}

}  // namespace millrace
