#include "engine/model/gguf_tensors.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
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

// Elements [first, first + out.size()) of tensors that follow each other.
absl::Status ReadJoined(const std::vector<StoredTensor>& parts, int64_t first,
                        absl::Span<float> out) {
  for (const StoredTensor& part : parts) {
    int64_t count = 1;
    for (int64_t extent : part.shape) count *= extent;
    if (first < count) {
      const int64_t taken = std::min<int64_t>(count - first, static_cast<int64_t>(out.size()));
      MILLRACE_RETURN_IF_ERROR(part.read(first, out.first(taken)));
      out.remove_prefix(taken);
      first += taken;
    }
    first -= count;
    if (out.empty()) return absl::OkStatus();
  }
  return absl::OutOfRangeError("more elements than a joined tensor has");
}

// Puts q, k and v of each block together where a family has them in one tensor, but the file apart.
absl::Status JoinProjections(const GgufFile& file, std::vector<StoredTensor>& stored) {
  constexpr absl::string_view kQuery = "q_proj.weight";
  const auto take = [&](const std::string& name) -> std::optional<StoredTensor> {
    const auto found = std::find_if(stored.begin(), stored.end(),
                                    [&](const StoredTensor& item) { return item.name == name; });
    if (found == stored.end()) return std::nullopt;
    StoredTensor item = std::move(*found);
    stored.erase(found);
    return item;
  };
  std::vector<std::string> prefixes;
  for (const StoredTensor& item : stored) {
    absl::string_view name = item.name;
    if (absl::ConsumeSuffix(&name, kQuery)) prefixes.emplace_back(name);
  }
  for (const std::string& prefix : prefixes) {
    std::vector<StoredTensor> parts;
    for (const char* module : {"q_proj.weight", "k_proj.weight", "v_proj.weight"}) {
      std::optional<StoredTensor> part = take(prefix + module);
      if (!part) return TensorError(file, prefix + module, "is missing");
      if (part->shape.size() != 2 || (!parts.empty() && part->shape[1] != parts[0].shape[1])) {
        return TensorError(file, part->name_in_file, "does not fit the others of its block");
      }
      parts.push_back(*std::move(part));
    }
    StoredTensor whole = parts[0];
    whole.name = prefix + "qkv_proj.weight";
    whole.shape[0] += parts[1].shape[0] + parts[2].shape[0];
    whole.read_bf16 = nullptr;
    whole.read = [parts = std::move(parts)](int64_t first, absl::Span<float> out) {
      return ReadJoined(parts, first, out);
    };
    stored.push_back(std::move(whole));
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
  if (architecture == "phi3") MILLRACE_RETURN_IF_ERROR(JoinProjections(*file, stored));
  return stored;
}

}  // namespace millrace
