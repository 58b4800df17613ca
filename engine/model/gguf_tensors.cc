#include "engine/model/gguf_tensors.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace millrace {
namespace {

absl::Status TensorError(const GgufFile& file, absl::string_view name, absl::string_view message) {
  return absl::InvalidArgumentError(
      absl::StrCat(file.path(), ": tensor \"", absl::Utf8SafeCHexEscape(name), "\" ", message));
}

// Rows of a head of the tensor, by the number of heads in the metadata.
absl::StatusOr<int64_t> HeadWidth(const GgufFile& file, absl::string_view architecture,
                                  const GgufTensor& tensor, GgufChange change) {
  const GgufValue* heads = file.FindValue(absl::StrCat(architecture, ".attention.head_count"));
  if (change == GgufChange::kInterleavedKey) {
    const GgufValue* kv = file.FindValue(absl::StrCat(architecture, ".attention.head_count_kv"));
    if (kv) heads = kv;
  }
  const std::optional<int64_t> number = heads ? heads->whole() : std::nullopt;
  const int64_t rows = tensor.shape.front();
  if (!number || *number < 1 || *number > rows || rows % *number != 0 || rows / *number % 2 != 0) {
    return TensorError(file, tensor.name,
                       absl::StrCat("has ", rows, " rows, which are not ", number.value_or(0),
                                    " heads of an even width (", architecture,
                                    ".attention.head_count or head_count_kv)"));
  }
  return rows / *number;
}

absl::Status ReadInterleaved(const GgufFile& file, const GgufTensor& tensor, int64_t width,
                             int64_t first, absl::Span<float> out) {
  const int64_t columns = tensor.count() / tensor.shape.front();
  while (!out.empty()) {
    const int64_t row = first / columns, column = first % columns;
    const int64_t taken = std::min<int64_t>(columns - column, out.size());
    MILLRACE_RETURN_IF_ERROR(
        file.Read(tensor, InterleavedRow(row, width) * columns + column, out.first(taken)));
    out.remove_prefix(taken);
    first += taken;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<StoredTensor>> GgufTensors(std::shared_ptr<const GgufFile> file) {
  const GgufValue* value = file->FindValue("general.architecture");
  const std::string architecture(value ? value->text().value_or("") : "");
  std::vector<StoredTensor> stored;
  for (const auto& [name, tensor] : file->tensors()) {
    if (IsGgufConstant(name)) continue;
    std::optional<GgufName> hub = HubNameOf(architecture, name);
    if (!hub) {
      return TensorError(
          *file, name,
          absl::StrCat("is none of architecture \"", absl::Utf8SafeCHexEscape(architecture), "\""));
    }
    StoredTensor item;
    item.name = std::move(hub->name);
    item.file = file->path();
    item.name_in_file = name;
    item.shape = tensor.shape;
    item.transposed = hub->change == GgufChange::kTransposed;
    item.position = tensor.offset_bytes;
    const GgufTensor* source = &tensor;
    if (hub->change == GgufChange::kInterleavedQuery ||
        hub->change == GgufChange::kInterleavedKey) {
      MILLRACE_ASSIGN_OR_RETURN(const int64_t width,
                                HeadWidth(*file, architecture, tensor, hub->change));
      item.read = [file, source, width](int64_t first, absl::Span<float> out) {
        return ReadInterleaved(*file, *source, width, first, out);
      };
    } else if (hub->change == GgufChange::kPlusOne) {
      item.read = [file, source](int64_t first, absl::Span<float> out) -> absl::Status {
        MILLRACE_RETURN_IF_ERROR(file->Read(*source, first, out));
        for (float& element : out) element -= 1.0f;
        return absl::OkStatus();
      };
    } else {
      item.read = [file, source](int64_t first, absl::Span<float> out) {
        return file->Read(*source, first, out);
      };
      if (tensor.type->type == GgmlType::kBF16) {
        item.read_bf16 = [file, source](int64_t first, absl::Span<BFloat16> out) {
          std::memcpy(out.data(), file->BytesOf(*source).substr(first * 2).data(), out.size() * 2);
          return absl::OkStatus();
        };
      }
    }
    stored.push_back(std::move(item));
  }
  return stored;
}

}  // namespace millrace
