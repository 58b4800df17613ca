#include "engine/model/gguf_writer.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace millrace {
namespace {

constexpr int64_t kAlignment = 32;
constexpr size_t kLongestName = 63;
constexpr int64_t kChunkElements = int64_t{1} << 18;

void Pad(int64_t size_bytes, std::string* out) {
  out->append(static_cast<size_t>((kAlignment - size_bytes % kAlignment) % kAlignment), '\0');
}

absl::Status TensorError(const GgufTensor& tensor, absl::string_view message) {
  return absl::InvalidArgumentError(absl::StrCat("tensor \"", tensor.name, "\" ", message));
}

absl::Status Check(const GgufMetadata& metadata, const std::vector<GgufTensor>& tensors) {
  std::set<absl::string_view> keys, names;
  for (const auto& [key, value] : metadata) {
    if (!keys.insert(key).second) {
      return absl::InvalidArgumentError(absl::StrCat("metadata \"", key, "\" is there twice"));
    }
  }
  for (const GgufTensor& tensor : tensors) {
    if (!names.insert(tensor.name).second) return TensorError(tensor, "is there twice");
    if (tensor.name.size() > kLongestName) return TensorError(tensor, "has too long a name");
    if (!tensor.type->encode) {
      return TensorError(tensor, absl::StrCat("would be of type ", tensor.type->name,
                                              "; F32, F16, BF16 and Q8_0 are written"));
    }
    if (tensor.shape.empty() || tensor.shape.back() % tensor.type->block_elements != 0) {
      return TensorError(
          tensor, absl::StrCat("has rows that are no whole blocks of ", tensor.type->block_elements,
                               ", as ", tensor.type->name, " needs"));
    }
  }
  return absl::OkStatus();
}

// What `values` became is finite, or they were not themselves.
bool Holds(const GgmlTypeInfo& type, absl::Span<const float> values, const uint8_t* bytes) {
  if (type.type == GgmlType::kF32) return true;
  float decoded[kMostBlockElements];
  const auto finite = [](float value) { return std::isfinite(value); };
  for (size_t i = 0; i < values.size(); i += type.block_elements, bytes += type.block_bytes) {
    const absl::Span<const float> block = values.subspan(i, type.block_elements);
    type.decode(bytes, 1, decoded);
    const bool kept = std::all_of(decoded, decoded + block.size(), finite);
    const bool had = std::all_of(block.begin(), block.end(), finite);
    // A quantized block has no infinities to write.
    if (had ? !kept : type.block_elements > 1) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<GgufWriter> GgufWriter::Create(const std::string& path, const GgufMetadata& metadata,
                                              std::vector<GgufTensor> tensors) {
  MILLRACE_RETURN_IF_ERROR(Check(metadata, tensors));
  std::string header = "GGUF";
  AppendGgufUint32(3, &header);
  AppendGgufUint64(tensors.size(), &header);
  AppendGgufUint64(metadata.size(), &header);
  for (const auto& [key, value] : metadata) {
    AppendGgufString(key, &header);
    AppendGgufUint32(static_cast<uint32_t>(value.type()), &header);
    header.append(value.encoded().data(), value.encoded().size());
  }
  int64_t end = 0;
  for (const GgufTensor& tensor : tensors) {
    AppendGgufString(tensor.name, &header);
    AppendGgufUint32(static_cast<uint32_t>(tensor.shape.size()), &header);
    for (auto extent = tensor.shape.rbegin(); extent != tensor.shape.rend(); ++extent) {
      AppendGgufUint64(static_cast<uint64_t>(*extent), &header);
    }
    AppendGgufUint32(static_cast<uint32_t>(tensor.type->type), &header);
    AppendGgufUint64(static_cast<uint64_t>(end), &header);
    end += (tensor.size_bytes() + kAlignment - 1) / kAlignment * kAlignment;
  }
  Pad(static_cast<int64_t>(header.size()), &header);
  MILLRACE_ASSIGN_OR_RETURN(FileWriter writer, FileWriter::Create(path));
  MILLRACE_RETURN_IF_ERROR(writer.Append(header));
  return GgufWriter(std::move(writer), std::move(tensors));
}

absl::Status GgufWriter::Append(absl::Span<const float> values) {
  if (values.empty()) return absl::OkStatus();
  if (tensor_ == tensors_.size() ||
      static_cast<int64_t>(values.size()) > tensors_[tensor_].count() - done_) {
    return absl::FailedPreconditionError("a GGUF file got more elements than its tensors have");
  }
  const GgufTensor& tensor = tensors_[tensor_];
  const size_t block = static_cast<size_t>(tensor.type->block_elements);
  done_ += static_cast<int64_t>(values.size());
  if (!pending_.empty()) {
    const size_t taken = std::min(block - pending_.size(), values.size());
    pending_.insert(pending_.end(), values.begin(), values.begin() + taken);
    values.remove_prefix(taken);
    if (pending_.size() == block) {
      MILLRACE_RETURN_IF_ERROR(Encode(pending_));
      pending_.clear();
    }
  }
  while (values.size() >= block) {
    const size_t taken = std::min<size_t>(kChunkElements, values.size() / block * block);
    MILLRACE_RETURN_IF_ERROR(Encode(values.first(taken)));
    values.remove_prefix(taken);
  }
  pending_.insert(pending_.end(), values.begin(), values.end());
  if (done_ < tensor.count()) return absl::OkStatus();
  encoded_.clear();
  Pad(tensor.size_bytes(), &encoded_);
  ++tensor_;
  done_ = 0;
  return writer_.Append(encoded_);
}

absl::Status GgufWriter::Encode(absl::Span<const float> values) {
  const GgufTensor& tensor = tensors_[tensor_];
  const GgmlTypeInfo& type = *tensor.type;
  const int64_t blocks = static_cast<int64_t>(values.size()) / type.block_elements;
  encoded_.resize(static_cast<size_t>(blocks * type.block_bytes));
  uint8_t* bytes = reinterpret_cast<uint8_t*>(encoded_.data());
  type.encode(values.data(), blocks, bytes);
  if (!Holds(type, values, bytes)) {
    return TensorError(tensor, absl::StrCat("has a value that ", type.name,
                                            " cannot hold; write it as BF16 or F32"));
  }
  return writer_.Append(encoded_);
}

absl::Status GgufWriter::Finish() {
  if (tensor_ != tensors_.size()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "a GGUF file did not get all elements of tensor \"", tensors_[tensor_].name, "\""));
  }
  return writer_.Finish();
}

}  // namespace millrace
