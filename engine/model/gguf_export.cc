#include "engine/model/gguf_export.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/base/status_macros.h"
#include "engine/model/gguf_metadata.h"
#include "engine/model/gguf_names.h"
#include "engine/model/gguf_tensors.h"

namespace millrace {
namespace {

constexpr int64_t kChunkElements = int64_t{1} << 20;

// general.file_type, by llama.cpp's enum llama_ftype.
uint32_t FileTypeOf(GgmlType type) {
  switch (type) {
    case GgmlType::kF32:
      return 0;
    case GgmlType::kF16:
      return 1;
    case GgmlType::kQ8_0:
      return 7;
    default:
      return 32;  // BF16
  }
}

// A tensor of the file and where its values are: `rows` rows from `offset` on in the slab of
// `unit`.
struct Item {
  int64_t unit, offset, rows, columns;
  GgufChange change;
  GgufTensor tensor;
};

bool IsInterleaved(GgufChange change) {
  return change == GgufChange::kInterleavedQuery || change == GgufChange::kInterleavedKey;
}

absl::StatusOr<std::vector<Item>> ListItems(absl::string_view architecture,
                                            const std::vector<SlabLayout>& layouts, GgmlType type) {
  std::vector<Item> items;
  for (const SlabLayout& slab : layouts) {
    for (const TensorLayout& layout : slab.tensors) {
      for (const TensorPart& part : layout.parts) {
        const std::optional<GgufName> name = GgufNameOf(architecture, part.name);
        if (!name) {
          return absl::UnimplementedError(
              absl::StrCat("tensor \"", part.name, "\" has no place in a GGUF file"));
        }
        Item item{slab.index,   layout.offset + part.first_row * layout.columns,
                  part.rows,    layout.columns,
                  name->change, {}};
        item.tensor.name = name->name;
        item.tensor.shape = {part.rows};
        item.tensor.type = &InfoOf(GgmlType::kF32);
        if (IsMatrix(layout.role)) {
          item.tensor.shape.push_back(layout.columns);
          item.tensor.type = &InfoOf(type);
          if (layout.columns % item.tensor.type->block_elements != 0) {
            item.tensor.type = &InfoOf(GgmlType::kF16);
          }
        }
        items.push_back(std::move(item));
      }
    }
  }
  return items;
}

// llama.cpp takes a model of such a name for Phi-3 itself, and ends where the vocabulary lacks that
// one's special tokens.
bool NamesPhi3(absl::string_view name) {
  const std::string lower = absl::AsciiStrToLower(name);
  return absl::StrContains(lower, "phi-3") || absl::StrContains(lower, "phi3");
}

GgufMetadata MetadataOf(const GgufModel& model, const GgufExportOptions& options) {
  GgufMetadata metadata = {
      {"general.type", GgufValue::String("model")},
      {"general.name", GgufValue::String(NamesPhi3(options.name) ? "" : options.name)},
      {"general.file_type", GgufValue::Uint32(FileTypeOf(options.type))},
      {"general.quantization_version", GgufValue::Uint32(2)},
  };
  metadata.insert(metadata.begin(), model.metadata.begin(), model.metadata.end());
  metadata.insert(metadata.end(), options.metadata.begin(), options.metadata.end());
  return metadata;
}

// Gives elements of one tensor to the file, a chunk of whole heads at a time.
absl::Status WriteItem(const Item& item, int64_t head_dim, SlabSource source, GgufWriter& file) {
  const int64_t group = IsInterleaved(item.change) ? head_dim : 1;
  const int64_t step = std::max<int64_t>(kChunkElements / (group * item.columns), 1) * group;
  std::vector<float> values, interleaved;
  for (int64_t row = 0; row < item.rows; row += step) {
    const int64_t rows = std::min(step, item.rows - row);
    values.resize(rows * item.columns);
    MILLRACE_RETURN_IF_ERROR(
        source(item.unit, item.offset + row * item.columns, absl::MakeSpan(values)));
    if (IsInterleaved(item.change)) {
      interleaved.resize(values.size());
      for (int64_t i = 0; i < rows; ++i) {
        std::copy_n(values.begin() + DirectoryRow(i, head_dim) * item.columns, item.columns,
                    interleaved.begin() + i * item.columns);
      }
      values.swap(interleaved);
    }
    if (item.change == GgufChange::kPlusOne) {
      for (float& value : values) value += 1.0f;
    }
    MILLRACE_RETURN_IF_ERROR(file.Append(values));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<WrittenFile> WriteGguf(const ModelSpec& spec, const std::vector<SlabLayout>& layouts,
                                      SlabSource source, const std::string& path,
                                      const GgufExportOptions& options) {
  MILLRACE_ASSIGN_OR_RETURN(const GgufModel model, DescribeForGguf(spec));
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<Item> items,
                            ListItems(model.architecture, layouts, options.type));
  std::vector<GgufTensor> tensors;
  for (const GgufConstant& constant : model.constants) {
    tensors.push_back(
        {constant.name, &InfoOf(GgmlType::kF32), {static_cast<int64_t>(constant.values.size())}});
  }
  for (const Item& item : items) tensors.push_back(item.tensor);
  MILLRACE_ASSIGN_OR_RETURN(
      GgufWriter file, GgufWriter::Create(path, MetadataOf(model, options), std::move(tensors)));
  for (const GgufConstant& constant : model.constants) {
    MILLRACE_RETURN_IF_ERROR(file.Append(constant.values));
  }
  for (const Item& item : items) {
    MILLRACE_RETURN_IF_ERROR(WriteItem(item, spec.head_dim, source, file));
  }
  MILLRACE_RETURN_IF_ERROR(file.Finish());
  return WrittenFile{std::filesystem::path(path).filename().string(), file.size_bytes(),
                     file.sha256()};
}

}  // namespace millrace
