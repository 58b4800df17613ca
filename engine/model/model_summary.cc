#include "engine/model/model_summary.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/field_problem.h"
#include "engine/base/file.h"
#include "engine/base/status_macros.h"
#include "engine/model/families.h"
#include "engine/model/file_tensor.h"
#include "engine/model/gguf_file.h"
#include "engine/model/model_directory.h"
#include "engine/model/safetensors.h"
#include "engine/model/slab_layout.h"
#include "nlohmann/json.hpp"

namespace millrace {
namespace {

namespace fs = std::filesystem;

// A config of a family that is not known is as good as any other, and not this program's to read.
absl::Status CheckFamily(const std::string& folder) {
  const std::string path = folder + "/config.json";
  MILLRACE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const nlohmann::json config = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) return absl::OkStatus();  // what reads it says so
  const auto type = config.find("model_type");
  if (type == config.end() || !type->is_string()) return absl::OkStatus();
  const std::vector<std::string> known = FamilyNames();
  if (std::find(known.begin(), known.end(), type->get<std::string>()) != known.end()) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(
      absl::StrCat(path, ": model_type: `", type->get<std::string>(),
                   "` is not supported; those that are: ", absl::StrJoin(known, ", ")));
}

// Headers alone: the first weight that would be read ends it.
absl::Status CheckTensors(const ModelSpec& spec, const std::vector<SlabLayout>& layouts,
                          const std::string& path) {
  bool complete = false;
  const absl::Status read = ReadModelDirectory(
      spec, layouts, path, [&complete](int64_t, int64_t, absl::Span<const float>) {
        complete = true;
        return absl::CancelledError();
      });
  return complete ? absl::OkStatus() : read;
}

const char* NameOf(FileDType type) {
  switch (type) {
    case FileDType::kF32:
      return "F32";
    case FileDType::kF16:
      return "F16";
    case FileDType::kBF16:
      return "BF16";
    case FileDType::kOther:
      break;
  }
  return "other";
}

std::string MostOf(const std::map<std::string, int64_t>& bytes) {
  std::string most;
  for (const auto& [type, count] : bytes) {
    if (most.empty() || count > bytes.at(most)) most = type;
  }
  return most;
}

absl::Status SummarizeGguf(const std::string& path, ModelSummary* summary) {
  MILLRACE_ASSIGN_OR_RETURN(const std::shared_ptr<const GgufFile> file, GgufFile::Open(path));
  std::map<std::string, int64_t> bytes;
  for (const auto& [name, tensor] : file->tensors()) {
    bytes[std::string(tensor.type->name)] += tensor.size_bytes();
  }
  summary->weight_type = MostOf(bytes);
  if (file->FindValue("tokenizer.ggml.model") != nullptr) summary->tokenizer = "gguf";
  return absl::OkStatus();
}

absl::Status SummarizeFolder(const std::string& path, ModelSummary* summary) {
  std::map<std::string, int64_t> bytes;
  std::error_code error;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() != ".safetensors") continue;
    MILLRACE_ASSIGN_OR_RETURN(const SafetensorsReader reader,
                              SafetensorsReader::Open(entry->path().string()));
    for (const auto& [name, tensor] : reader.tensors()) {
      bytes[NameOf(tensor.dtype)] += tensor.count() * (tensor.dtype == FileDType::kF32 ? 4 : 2);
    }
  }
  if (error) return ErrnoToStatus(error.value(), "list", path);
  summary->weight_type = MostOf(bytes);
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    std::error_code ignored;
    if (summary->tokenizer.empty() && fs::is_regular_file(fs::path(path) / name, ignored)) {
      summary->tokenizer = name;
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelSummary> SummarizeModel(const std::string& path) {
  ModelSummary summary;
  std::error_code ignored;
  summary.gguf = fs::is_regular_file(path, ignored);
  if (!summary.gguf) MILLRACE_RETURN_IF_ERROR(CheckFamily(path));
  std::vector<FieldProblem> notes;
  MILLRACE_ASSIGN_OR_RETURN(summary.spec, ReadModelDirectoryConfig(path, &notes));
  for (const FieldProblem& note : notes) {
    summary.notes.push_back(absl::StrCat(note.field, ": ", note.message));
  }
  const std::vector<SlabLayout> layouts = MakeSlabLayouts(summary.spec);
  MILLRACE_RETURN_IF_ERROR(CheckTensors(summary.spec, layouts, path));
  MILLRACE_ASSIGN_OR_RETURN(const std::vector<FileTensor> tensors, ListFileTensors(layouts));
  for (const FileTensor& tensor : tensors) summary.parameter_count += tensor.count();
  MILLRACE_RETURN_IF_ERROR(summary.gguf ? SummarizeGguf(path, &summary)
                                        : SummarizeFolder(path, &summary));
  return summary;
}

}  // namespace millrace
