#include "engine/model/model_directory.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "engine/base/file.h"
#include "engine/base/json_file.h"
#include "engine/base/status_macros.h"
#include "engine/model/families.h"
#include "engine/model/file_tensor.h"
#include "engine/model/gguf_config.h"
#include "engine/model/gguf_file.h"
#include "engine/model/model_files.h"
#include "engine/model/safetensors.h"
#include "engine/model/transpose.h"
#include "nlohmann/json.hpp"

namespace millrace {
namespace {

using nlohmann::json;

constexpr int64_t kChunkElements = int64_t{1} << 20;

std::string Join(const std::string& folder, absl::string_view name) {
  return absl::StrCat(folder, "/", name);
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

// Constants that older versions of transformers saved beside the parameters.
bool IsConstant(absl::string_view name) {
  return absl::EndsWith(name, ".attn.bias") || absl::EndsWith(name, ".attn.masked_bias") ||
         absl::EndsWith(name, ".attention.bias") ||
         absl::EndsWith(name, ".attention.masked_bias") ||
         absl::EndsWith(name, "rotary_emb.inv_freq");
}

// What one model's weights on disk are checked against.
class WeightsChecker {
 public:
  WeightsChecker(const ModelSpec& spec, const std::string& path)
      : spec_(spec), path_(path), source_(IsGgufPath(path) ? "its metadata" : "config.json") {}

  absl::Status Missing(const FileTensor& tensor) const {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": has no tensor \"", tensor.name,
                                                   "\"; the weights do not belong to ",
                                                   IsGgufPath(path_) ? "" : "this ", source_));
  }
  absl::Status Unknown(const StoredTensor& stored) const {
    return Error(stored, absl::StrCat("is none of a ", spec_.model_type, " model that ", source_,
                                      " describes"));
  }
  absl::Status Untied(const StoredTensor& head) const {
    return Error(head, absl::StrCat("is not the embedding, though ", source_,
                                    " ties them; the weights or tie_word_embeddings are wrong"));
  }

  // That `stored` can be read as `tensor`.
  absl::Status Fits(const StoredTensor& stored, const FileTensor& tensor) const {
    std::vector<int64_t> shape = tensor.shape();
    if (stored.transposed) std::reverse(shape.begin(), shape.end());
    if (stored.shape != shape) {
      return Error(stored, absl::StrCat("has shape [", absl::StrJoin(stored.shape, ", "), "], but ",
                                        source_, " makes it [", absl::StrJoin(shape, ", "), "]"));
    }
    if (stored.read) return absl::OkStatus();
    return Error(stored, "has a type that is none of F32, F16, BF16");
  }

 private:
  static absl::Status Error(const StoredTensor& stored, absl::string_view message) {
    return absl::InvalidArgumentError(
        absl::StrCat(stored.file, ": tensor \"", stored.name_in_file, "\" ", message));
  }

  const ModelSpec& spec_;
  const std::string& path_;
  const absl::string_view source_;
};

// The output projection that the model would have if its embeddings were not tied.
std::vector<FileTensor> HeadOf(ModelSpec spec) {
  spec.tied_embeddings = false;
  const std::vector<SlabLayout> layouts = MakeSlabLayouts(spec);
  const TensorLayout* head = layouts.back().Find(TensorRole::kOutputProjection);
  SlabLayout alone{.kind = UnitKind::kHead, .index = layouts.back().index, .tensors = {}};
  if (head) alone.tensors.push_back(*head);
  return ListFileTensors({alone}).value_or(std::vector<FileTensor>());
}

// Files may have the head of a model with tied embeddings, as a copy of the embedding `sources`
// has.
absl::Status CheckTiedHead(const WeightsChecker& checker, const ModelSpec& spec,
                           const SlabLayout& embedding, absl::Span<const TensorSource> sources,
                           ModelWeights& weights) {
  const TensorLayout* tokens = embedding.Find(TensorRole::kTokenEmbedding);
  for (const FileTensor& tensor : HeadOf(spec)) {
    const std::optional<StoredTensor> head = weights.Take(tensor.name);
    if (!head) continue;
    MILLRACE_RETURN_IF_ERROR(checker.Fits(*head, tensor));
    for (const TensorSource& source : sources) {
      if (source.tensor->name != tokens->parts.front().name) continue;
      MILLRACE_ASSIGN_OR_RETURN(const bool same, SameValues(*head, source.stored));
      if (!same) return checker.Untied(*head);
    }
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
        files.size() == 1 ? std::string(kWeightsName)
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
  const json config =
      WriteModelConfig(spec, {.torch_dtype = options.dtype == DType::kF32 ? "float32" : "bfloat16",
                              .end_of_document = options.end_of_document,
                              .begin_of_document = options.begin_of_document});
  MILLRACE_ASSIGN_OR_RETURN(WrittenFile file, WriteJson(folder, kConfigName, config));
  written.push_back(std::move(file));
  return written;
}

absl::StatusOr<ModelSpec> ReadModelDirectoryConfig(const std::string& path,
                                                   std::vector<FieldProblem>* notes) {
  std::string source = path;
  json config;
  if (IsGgufPath(path)) {
    MILLRACE_ASSIGN_OR_RETURN(const std::shared_ptr<const GgufFile> file, GgufFile::Open(path));
    MILLRACE_ASSIGN_OR_RETURN(config, GgufConfig(*file));
  } else {
    source = Join(path, kConfigName);
    MILLRACE_ASSIGN_OR_RETURN(config, ReadJsonFile(source));
  }
  std::vector<FieldProblem> left_out;
  absl::StatusOr<ModelSpec> spec = ParseModelConfig(config, std::nullopt, nullptr, &left_out);
  if (notes) *notes = std::move(left_out);
  if (spec.ok()) return spec;
  return absl::Status(spec.status().code(), absl::StrCat(source, ": ", spec.status().message()));
}

absl::Status ReadModelDirectory(const ModelSpec& spec, const std::vector<SlabLayout>& layouts,
                                const std::string& path, SlabSink sink,
                                const ReadOptions& options) {
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<FileTensor> tensors, ListFileTensors(layouts));
  MILLRACE_ASSIGN_OR_RETURN(ModelWeights weights, ModelWeights::Open(path));
  const WeightsChecker checker(spec, path);
  std::vector<TensorSource> sources;
  for (const FileTensor& tensor : tensors) {
    std::optional<StoredTensor> stored = weights.Take(tensor.name);
    if (!stored) return checker.Missing(tensor);
    MILLRACE_RETURN_IF_ERROR(checker.Fits(*stored, tensor));
    sources.push_back({&tensor, *std::move(stored)});
  }
  if (spec.tied_embeddings) {
    MILLRACE_RETURN_IF_ERROR(CheckTiedHead(checker, spec, layouts.front(), sources, weights));
  }
  for (const auto& [name, stored] : weights.left()) {
    if (!IsConstant(name)) return checker.Unknown(stored);
  }
  return ReadTensors(sources, sink, options);
}

}  // namespace millrace
