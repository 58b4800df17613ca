#include "engine/model/model_directory.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "engine/base/file.h"
#include "engine/base/status_macros.h"
#include "engine/model/families.h"
#include "engine/model/file_tensor.h"
#include "engine/model/gguf_config.h"
#include "engine/model/gguf_file.h"
#include "engine/model/gguf_tensors.h"
#include "engine/model/safetensors.h"
#include "engine/model/stored_tensor.h"
#include "nlohmann/json.hpp"

namespace millrace {
namespace {

using nlohmann::json;

constexpr int64_t kChunkElements = int64_t{1} << 20;
constexpr absl::string_view kConfigName = "config.json";
constexpr absl::string_view kSingleName = "model.safetensors";
constexpr absl::string_view kIndexName = "model.safetensors.index.json";

std::string Join(const std::string& folder, absl::string_view name) {
  return absl::StrCat(folder, "/", name);
}

// A model is a folder or one GGUF file.
bool IsGguf(const std::string& path) {
  std::error_code ignored;  // whoever opens it says what is wrong
  return std::filesystem::is_regular_file(path, ignored);
}

// Calls function(first, count) for the chunks of [0, total), each a multiple of `unit`.
template <typename Function>
absl::Status ForChunks(int64_t total, int64_t unit, Function function) {
  const int64_t chunk = std::max<int64_t>(kChunkElements / unit, 1) * unit;
  for (int64_t first = 0; first < total; first += chunk) {
    MILLRACE_RETURN_IF_ERROR(function(first, std::min(chunk, total - first)));
  }
  return absl::OkStatus();
}

// Columns [first, first + count) of matrix [rows, columns] as rows of `out` [count, rows].
void TransposeColumns(absl::Span<const float> matrix, int64_t rows, int64_t columns, int64_t first,
                      int64_t count, float* out) {
  constexpr int64_t kTile = 32;
  for (int64_t r0 = 0; r0 < rows; r0 += kTile) {
    for (int64_t c0 = 0; c0 < count; c0 += kTile) {
      for (int64_t c = c0; c < std::min(c0 + kTile, count); ++c) {
        for (int64_t r = r0; r < std::min(r0 + kTile, rows); ++r) {
          out[c * rows + r] = matrix[r * columns + first + c];
        }
      }
    }
  }
}

// Writes tensors of one type to one file.
class TensorWriter {
 public:
  TensorWriter(SafetensorsWriter& file, DType dtype, SlabSource source)
      : file_(file), dtype_(dtype), source_(source) {}

  absl::Status Write(const FileTensor& tensor) {
    if (tensor.transposed) return WriteTransposed(tensor);
    for (const RowRun& run : tensor.runs) {
      MILLRACE_RETURN_IF_ERROR(
          ForChunks(run.rows * tensor.columns, 1, [&](int64_t first, int64_t count) {
            values_.resize(count);
            MILLRACE_RETURN_IF_ERROR(
                source_(run.unit, run.offset + first, absl::MakeSpan(values_)));
            return Append();
          }));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status WriteTransposed(const FileTensor& tensor) {
    std::vector<float> whole(tensor.count());
    for (const RowRun& run : tensor.runs) {
      MILLRACE_RETURN_IF_ERROR(source_(run.unit, run.offset,
                                       absl::MakeSpan(whole).subspan(run.first_row * tensor.columns,
                                                                     run.rows * tensor.columns)));
    }
    return ForChunks(tensor.count(), tensor.rows, [&](int64_t first, int64_t count) {
      values_.resize(count);
      TransposeColumns(whole, tensor.rows, tensor.columns, first / tensor.rows, count / tensor.rows,
                       values_.data());
      return Append();
    });
  }

  absl::Status Append() {
    if (dtype_ == DType::kF32) {
      return file_.Append({reinterpret_cast<const char*>(values_.data()), values_.size() * 4});
    }
    rounded_.resize(values_.size());
    std::transform(values_.begin(), values_.end(), rounded_.begin(), BFloat16::FromFloat);
    return file_.Append({reinterpret_cast<const char*>(rounded_.data()), rounded_.size() * 2});
  }

  SafetensorsWriter& file_;
  DType dtype_;
  SlabSource source_;
  std::vector<float> values_;
  std::vector<BFloat16> rounded_;
};

// The tensors of each file.
std::vector<std::vector<FileTensor>> DivideIntoFiles(std::vector<FileTensor> tensors,
                                                     const ModelDirectoryOptions& options) {
  std::vector<std::vector<FileTensor>> files(1);
  int64_t bytes = 0;
  for (FileTensor& tensor : tensors) {
    const int64_t size = tensor.count() * static_cast<int64_t>(SizeOf(options.dtype));
    if (bytes > 0 && bytes + size > options.max_file_bytes) {
      files.emplace_back();
      bytes = 0;
    }
    bytes += size;
    files.back().push_back(std::move(tensor));
  }
  return files;
}

absl::StatusOr<WrittenFile> WriteWeights(const std::string& folder, const std::string& name,
                                         const std::vector<FileTensor>& tensors, DType dtype,
                                         SlabSource source) {
  std::vector<SafetensorsEntry> entries;
  const FileDType file_dtype = dtype == DType::kF32 ? FileDType::kF32 : FileDType::kBF16;
  for (const FileTensor& tensor : tensors) {
    entries.push_back({tensor.name, file_dtype, tensor.shape()});
  }
  MILLRACE_ASSIGN_OR_RETURN(SafetensorsWriter file,
                            SafetensorsWriter::Create(Join(folder, name), entries));
  TensorWriter writer(file, dtype, source);
  for (const FileTensor& tensor : tensors) MILLRACE_RETURN_IF_ERROR(writer.Write(tensor));
  MILLRACE_RETURN_IF_ERROR(file.Finish());
  return WrittenFile{name, file.size_bytes(), file.sha256()};
}

absl::StatusOr<WrittenFile> WriteJson(const std::string& folder, absl::string_view name,
                                      const json& value) {
  MILLRACE_ASSIGN_OR_RETURN(FileWriter file, FileWriter::Create(Join(folder, name)));
  MILLRACE_RETURN_IF_ERROR(file.Append(value.dump(2) + "\n"));
  MILLRACE_RETURN_IF_ERROR(file.Finish());
  return WrittenFile{std::string(name), file.size_bytes(), file.sha256()};
}

// Parsed content of a JSON file.
absl::StatusOr<json> ReadJson(const std::string& path) {
  MILLRACE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  json value = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is not valid JSON"));
  }
  return value;
}

// The names of the safetensors files of a model directory.
absl::StatusOr<std::set<std::string>> WeightFiles(const std::string& folder) {
  const std::string path = Join(folder, kIndexName);
  if (!std::filesystem::exists(path)) return std::set<std::string>{std::string(kSingleName)};
  MILLRACE_ASSIGN_OR_RETURN(const json index, ReadJson(path));
  std::set<std::string> names;
  const auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object() || map->empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": has no weight_map"));
  }
  for (const json& name : *map) {
    if (!name.is_string() || absl::StrContains(name.get<std::string>(), "/")) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": weight_map names ", name.dump(), ", which is no file name"));
    }
    names.insert(name.get<std::string>());
  }
  return names;
}

absl::StatusOr<std::vector<StoredTensor>> SafetensorsOf(const std::string& folder) {
  MILLRACE_ASSIGN_OR_RETURN(const std::set<std::string> names, WeightFiles(folder));
  std::vector<StoredTensor> stored;
  for (const std::string& file : names) {
    MILLRACE_ASSIGN_OR_RETURN(SafetensorsReader opened,
                              SafetensorsReader::Open(Join(folder, file)));
    const auto reader = std::make_shared<const SafetensorsReader>(std::move(opened));
    for (const auto& [name, tensor] : reader->tensors()) {
      const SafetensorsEntry* entry = &tensor;
      stored.push_back({name, reader->path(), name, entry->shape, /*transposed=*/false,
                        [reader, entry](int64_t first, absl::Span<float> out) {
                          return reader->Read(*entry, first, out);
                        }});
    }
  }
  return stored;
}

// The tensors of a model on disk, by name.
class Weights {
 public:
  static absl::StatusOr<Weights> Open(const std::string& path) {
    std::vector<StoredTensor> stored;
    if (IsGguf(path)) {
      MILLRACE_ASSIGN_OR_RETURN(std::shared_ptr<const GgufFile> file, GgufFile::Open(path));
      MILLRACE_ASSIGN_OR_RETURN(stored, GgufTensors(std::move(file)));
    } else {
      MILLRACE_ASSIGN_OR_RETURN(stored, SafetensorsOf(path));
    }
    Weights weights;
    for (StoredTensor& tensor : stored) {
      std::string name = tensor.name, file = tensor.file;
      if (!weights.tensors_.emplace(name, std::move(tensor)).second) {
        return absl::InvalidArgumentError(
            absl::StrCat(file, ": tensor \"", name, "\" is in another file too"));
      }
    }
    return weights;
  }

  // Takes the tensor `name`, or the one that has it without the base model's prefix, as models
  // without a head are saved. Nothing when there is none.
  std::optional<StoredTensor> Take(absl::string_view name) {
    auto place = tensors_.find(name);
    for (absl::string_view prefix : {"transformer.", "model."}) {
      if (place == tensors_.end() && absl::StartsWith(name, prefix)) {
        place = tensors_.find(name.substr(prefix.size()));
      }
    }
    if (place == tensors_.end()) return std::nullopt;
    StoredTensor found = std::move(place->second);
    tensors_.erase(place);
    return found;
  }

  // What has not been taken.
  const std::map<std::string, StoredTensor, std::less<>>& left() const { return tensors_; }

 private:
  std::map<std::string, StoredTensor, std::less<>> tensors_;
};

// Tensors that files of these families may hold beside the parameters: constants that older
// versions of transformers saved, and a tied head.
bool IsNoParameter(absl::string_view name, const ModelSpec& spec) {
  return absl::EndsWith(name, ".attn.bias") || absl::EndsWith(name, ".attn.masked_bias") ||
         absl::EndsWith(name, "rotary_emb.inv_freq") ||
         (spec.tied_embeddings && name == "lm_head.weight");
}

absl::Status ReadTensor(const FileTensor& tensor, const StoredTensor& stored, SlabSink sink) {
  std::vector<float> values;
  if (tensor.transposed == stored.transposed) {
    for (const RowRun& run : tensor.runs) {
      MILLRACE_RETURN_IF_ERROR(
          ForChunks(run.rows * tensor.columns, 1, [&](int64_t first, int64_t count) {
            values.resize(count);
            MILLRACE_RETURN_IF_ERROR(
                stored.read(run.first_row * tensor.columns + first, absl::MakeSpan(values)));
            return sink(run.unit, run.offset + first, values);
          }));
    }
    return absl::OkStatus();
  }
  std::vector<float> whole(tensor.count());
  MILLRACE_RETURN_IF_ERROR(stored.read(0, absl::MakeSpan(whole)));
  for (const RowRun& run : tensor.runs) {
    MILLRACE_RETURN_IF_ERROR(
        ForChunks(run.rows * tensor.columns, tensor.columns, [&](int64_t first, int64_t count) {
          values.resize(count);
          TransposeColumns(whole, tensor.columns, tensor.rows,
                           run.first_row + first / tensor.columns, count / tensor.columns,
                           values.data());
          return sink(run.unit, run.offset + first, values);
        }));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<WrittenFile>> WriteModelDirectory(const ModelSpec& spec,
                                                             const std::vector<SlabLayout>& layouts,
                                                             SlabSource source,
                                                             const std::string& folder,
                                                             const ModelDirectoryOptions& options) {
  MILLRACE_ASSIGN_OR_RETURN(std::vector<FileTensor> tensors, ListFileTensors(layouts));
  const std::vector<std::vector<FileTensor>> files = DivideIntoFiles(std::move(tensors), options);
  std::vector<WrittenFile> written;
  json weight_map = json::object();
  int64_t total_bytes = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string name =
        files.size() == 1 ? std::string(kSingleName)
                          : absl::StrFormat("model-%05d-of-%05d.safetensors", i + 1, files.size());
    MILLRACE_ASSIGN_OR_RETURN(WrittenFile file,
                              WriteWeights(folder, name, files[i], options.dtype, source));
    written.push_back(std::move(file));
    for (const FileTensor& tensor : files[i]) {
      weight_map[tensor.name] = name;
      total_bytes += tensor.count() * static_cast<int64_t>(SizeOf(options.dtype));
    }
  }
  if (files.size() > 1) {
    const json index = {{"metadata", {{"total_size", total_bytes}}}, {"weight_map", weight_map}};
    MILLRACE_ASSIGN_OR_RETURN(WrittenFile file, WriteJson(folder, kIndexName, index));
    written.push_back(std::move(file));
  }
  const json config = WriteModelConfig(
      spec, {options.dtype == DType::kF32 ? "float32" : "bfloat16", options.end_of_document});
  MILLRACE_ASSIGN_OR_RETURN(WrittenFile file, WriteJson(folder, kConfigName, config));
  written.push_back(std::move(file));
  return written;
}

absl::StatusOr<ModelSpec> ReadModelDirectoryConfig(const std::string& path) {
  std::string source = path;
  json config;
  if (IsGguf(path)) {
    MILLRACE_ASSIGN_OR_RETURN(const std::shared_ptr<const GgufFile> file, GgufFile::Open(path));
    MILLRACE_ASSIGN_OR_RETURN(config, GgufConfig(*file));
  } else {
    source = Join(path, kConfigName);
    MILLRACE_ASSIGN_OR_RETURN(config, ReadJson(source));
  }
  absl::StatusOr<ModelSpec> spec = ParseModelConfig(config, std::nullopt);
  if (spec.ok()) return spec;
  return absl::Status(spec.status().code(), absl::StrCat(source, ": ", spec.status().message()));
}

absl::Status ReadModelDirectory(const ModelSpec& spec, const std::vector<SlabLayout>& layouts,
                                const std::string& path, SlabSink sink) {
  const absl::string_view source = IsGguf(path) ? "its metadata" : kConfigName;
  MILLRACE_ASSIGN_OR_RETURN(Weights weights, Weights::Open(path));
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<FileTensor> tensors, ListFileTensors(layouts));
  for (const FileTensor& tensor : tensors) {
    const std::optional<StoredTensor> stored = weights.Take(tensor.name);
    if (!stored) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": has no tensor \"", tensor.name,
                                                     "\"; the weights do not belong to ",
                                                     IsGguf(path) ? "" : "this ", source));
    }
    std::vector<int64_t> shape = tensor.shape();
    if (stored->transposed) std::reverse(shape.begin(), shape.end());
    if (stored->shape != shape) {
      return absl::InvalidArgumentError(
          absl::StrCat(stored->file, ": tensor \"", stored->name_in_file, "\" has shape [",
                       absl::StrJoin(stored->shape, ", "), "], but ", source, " makes it [",
                       absl::StrJoin(shape, ", "), "]"));
    }
    MILLRACE_RETURN_IF_ERROR(ReadTensor(tensor, *stored, sink));
  }
  for (const auto& [name, stored] : weights.left()) {
    if (IsNoParameter(name, spec)) continue;
    return absl::InvalidArgumentError(absl::StrCat(stored.file, ": tensor \"", stored.name_in_file,
                                                   "\" is none of a ", spec.model_type,
                                                   " model that ", source, " describes"));
  }
  return absl::OkStatus();
}

}  // namespace millrace
