#include "engine/train/checkpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/file.h"
#include "engine/base/status_macros.h"
#include "engine/state/load_weights.h"
#include "nlohmann/json.hpp"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kFormat = 1;
constexpr char kManifest[] = "manifest.json";
constexpr char kTrainerState[] = "trainer_state.json";
constexpr char kOptimizerState[] = "optimizer_state.bin";
constexpr size_t kChunkBytes = size_t{4} << 20;

absl::Status DataLoss(const std::string& path, absl::string_view what) {
  return absl::DataLossError(absl::StrCat(path, " is damaged: ", what));
}

// Calls function(data, bytes) for every slab of optimizer_state.bin in its order: all but what is
// streamed.
template <typename State, typename Function>
absl::Status ForEachOptimizerSlab(State& state, Function function) {
  for (int unit = 0; unit < state.num_units(); ++unit) {
    const auto slabs = state.Slabs(unit);
    for (size_t i = 1; i < slabs.size(); ++i) {
      MILLRACE_RETURN_IF_ERROR(function(slabs[i].data(), slabs[i].size()));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckNotCancelled(const std::atomic<bool>* cancelled) {
  if (cancelled == nullptr || !cancelled->load(std::memory_order_acquire)) return absl::OkStatus();
  return absl::CancelledError("cancelled");
}

absl::StatusOr<WrittenFile> WriteOptimizerState(const HostState& state, const std::string& folder,
                                                const std::atomic<bool>* cancelled) {
  MILLRACE_ASSIGN_OR_RETURN(FileWriter writer,
                            FileWriter::Create(absl::StrCat(folder, "/", kOptimizerState)));
  MILLRACE_RETURN_IF_ERROR(ForEachOptimizerSlab(state, [&](const void* data, size_t bytes) {
    const char* begin = static_cast<const char*>(data);
    for (size_t done = 0; done < bytes; done += kChunkBytes) {
      MILLRACE_RETURN_IF_ERROR(CheckNotCancelled(cancelled));
      const size_t chunk = std::min(kChunkBytes, bytes - done);
      MILLRACE_RETURN_IF_ERROR(writer.Append({begin + done, chunk}));
    }
    return absl::OkStatus();
  }));
  MILLRACE_RETURN_IF_ERROR(writer.Finish());
  return WrittenFile{kOptimizerState, writer.size_bytes(), writer.sha256()};
}

absl::Status ReadOptimizerState(const std::string& path, HostState* state) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return ErrnoToStatus(errno, "open", path);
  const absl::Status status = ForEachOptimizerSlab(*state, [&](void* data, size_t bytes) {
    char* begin = static_cast<char*>(data);
    for (size_t done = 0; done < bytes;) {
      const ssize_t count = read(fd, begin + done, bytes - done);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return ErrnoToStatus(errno, "read", path);
      if (count == 0) return DataLoss(path, "it ends too early for this model");
      done += static_cast<size_t>(count);
    }
    return absl::OkStatus();
  });
  char beyond;
  const bool longer = status.ok() && read(fd, &beyond, 1) == 1;
  close(fd);
  return longer ? DataLoss(path, "it is too long for this model") : status;
}

absl::StatusOr<WrittenFile> WriteJson(const json& content, const std::string& folder,
                                      const char* name) {
  MILLRACE_ASSIGN_OR_RETURN(FileWriter writer, FileWriter::Create(absl::StrCat(folder, "/", name)));
  MILLRACE_RETURN_IF_ERROR(writer.Append(content.dump(2) + "\n"));
  MILLRACE_RETURN_IF_ERROR(writer.Finish());
  return WrittenFile{name, writer.size_bytes(), writer.sha256()};
}

absl::Status CopyFiles(const std::string& from, const std::string& to,
                       std::vector<WrittenFile>* files) {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator entry(from, error), end; !error && entry != end;
       entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error) return ErrnoToStatus(error.value(), "read", from);
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    MILLRACE_ASSIGN_OR_RETURN(const std::string content, ReadFile(absl::StrCat(from, "/", name)));
    MILLRACE_ASSIGN_OR_RETURN(FileWriter writer, FileWriter::Create(absl::StrCat(to, "/", name)));
    MILLRACE_RETURN_IF_ERROR(writer.Append(content));
    MILLRACE_RETURN_IF_ERROR(writer.Finish());
    files->push_back({name, writer.size_bytes(), writer.sha256()});
  }
  return absl::OkStatus();
}

absl::StatusOr<json> ReadJson(const std::string& path) {
  MILLRACE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  json content = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!content.is_object()) return DataLoss(path, "it is not a JSON object");
  if (content.value("format", json()) != kFormat) {
    return absl::FailedPreconditionError(absl::StrCat(path, " has format ",
                                                      content.value("format", json()).dump(),
                                                      "; this program reads ", kFormat));
  }
  return content;
}

json OptionalNumber(const std::optional<double>& value) {
  return value ? json(*value) : json(nullptr);
}

std::optional<double> OptionalNumber(const json& value) {
  return value.is_number() ? std::optional<double>(value.get<double>()) : std::nullopt;
}

json TrainerStateToJson(const TrainerState& state) {
  return {{"format", kFormat},
          {"step", state.step},
          {"total_tokens", state.total_tokens},
          {"cursor", {{"epoch", state.cursor.epoch}, {"position", state.cursor.position}}},
          {"evaluation_loss", OptionalNumber(state.evaluation_loss)},
          {"random", "philox4x32-10, keyed by train.seed"},
          {"identity", state.identity}};
}

absl::Status WriteInto(const std::string& folder, const ModelSpec& model, const HostState& state,
                       const TrainerState& trainer_state, const std::atomic<bool>* cancelled,
                       const std::string& tokenizer_folder, const Tokenizer* tokenizer,
                       CheckpointInfo* info) {
  const auto streamed = [&](int64_t unit, int64_t offset, absl::Span<float> out) {
    MILLRACE_RETURN_IF_ERROR(CheckNotCancelled(cancelled));
    if (state.compute_dtype() == DType::kBF16) {
      const BFloat16* high =
          static_cast<const BFloat16*>(state.StreamedWeights(static_cast<int>(unit))) + offset;
      for (size_t i = 0; i < out.size(); ++i) out[i] = high[i].ToFloat();
    } else {
      state.ReadMaster(static_cast<int>(unit), offset, out);
    }
    return absl::OkStatus();
  };
  ModelDirectoryOptions options = {.dtype = state.compute_dtype()};
  if (tokenizer != nullptr) {
    options.end_of_document = tokenizer->end_of_document();
    options.begin_of_document = tokenizer->begin_of_document();
  }
  MILLRACE_ASSIGN_OR_RETURN(info->files,
                            WriteModelDirectory(model, state.layouts(), streamed, folder, options));
  if (!tokenizer_folder.empty()) {
    MILLRACE_RETURN_IF_ERROR(CopyFiles(tokenizer_folder, folder, &info->files));
  }
  MILLRACE_ASSIGN_OR_RETURN(info->files.emplace_back(),
                            WriteOptimizerState(state, folder, cancelled));
  MILLRACE_ASSIGN_OR_RETURN(info->files.emplace_back(),
                            WriteJson(TrainerStateToJson(trainer_state), folder, kTrainerState));
  json files = json::array();
  for (const WrittenFile& file : info->files) {
    files.push_back(
        {{"name", file.name}, {"size_bytes", file.size_bytes}, {"sha256", file.sha256}});
    info->size_bytes += file.size_bytes;
  }
  const json manifest = {{"format", kFormat},
                         {"step", trainer_state.step},
                         {"evaluation_loss", OptionalNumber(trainer_state.evaluation_loss)},
                         {"files", files}};
  MILLRACE_RETURN_IF_ERROR(WriteJson(manifest, folder, kManifest).status());
  return SyncFolder(folder);
}

absl::Status Rename(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) == 0) return absl::OkStatus();
  return ErrnoToStatus(errno, "rename into place", to);
}

}  // namespace

absl::StatusOr<CheckpointInfo> WriteCheckpoint(const std::string& checkpoints,
                                               const ModelSpec& model, const HostState& state,
                                               const TrainerState& trainer_state,
                                               const std::atomic<bool>* cancelled,
                                               const std::string& tokenizer_folder,
                                               const Tokenizer* tokenizer) {
  CheckpointInfo info;
  info.step = trainer_state.step;
  info.evaluation_loss = trainer_state.evaluation_loss;
  info.folder = absl::StrCat(checkpoints, "/", info.step);
  const std::string temporary = absl::StrCat(checkpoints, "/.writing-", info.step);
  const std::string replaced = absl::StrCat(checkpoints, "/.replaced-", info.step);

  std::error_code error;
  fs::remove_all(temporary, error);
  fs::remove_all(replaced, error);
  MILLRACE_RETURN_IF_ERROR(MakeFolderDurably(temporary));

  absl::Status status = WriteInto(temporary, model, state, trainer_state, cancelled,
                                  tokenizer_folder, tokenizer, &info);
  const bool replaces = status.ok() && fs::exists(info.folder, error);
  // Interrupted between the two, RemoveLeftovers brings it back.
  if (replaces) status = Rename(info.folder, replaced);
  if (status.ok()) status = Rename(temporary, info.folder);
  if (!status.ok()) {
    fs::remove_all(temporary, error);
    if (replaces) fs::rename(replaced, info.folder, error);
    return status;
  }
  MILLRACE_RETURN_IF_ERROR(SyncFolder(checkpoints));
  fs::remove_all(replaced, error);
  return info;
}

absl::StatusOr<CheckpointInfo> ReadManifest(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/", kManifest);
  MILLRACE_ASSIGN_OR_RETURN(const json manifest, ReadJson(path));
  CheckpointInfo info;
  info.folder = folder;
  try {
    info.step = manifest.at("step").get<int64_t>();
    info.evaluation_loss = OptionalNumber(manifest.at("evaluation_loss"));
    for (const json& file : manifest.at("files")) {
      info.files.push_back({file.at("name").get<std::string>(),
                            file.at("size_bytes").get<int64_t>(),
                            file.at("sha256").get<std::string>()});
      info.size_bytes += info.files.back().size_bytes;
    }
  } catch (const json::exception& exception) {
    return DataLoss(path, exception.what());
  }
  for (const WrittenFile& file : info.files) {
    const std::string file_path = absl::StrCat(folder, "/", file.name);
    std::error_code error;
    const auto size = fs::file_size(file_path, error);
    if (error) return DataLoss(file_path, "it is missing");
    if (static_cast<int64_t>(size) != file.size_bytes) {
      return DataLoss(file_path,
                      absl::StrCat("it has ", size, " bytes instead of ", file.size_bytes));
    }
  }
  return info;
}

absl::Status VerifyHashes(const CheckpointInfo& info) {
  for (const WrittenFile& file : info.files) {
    const std::string path = absl::StrCat(info.folder, "/", file.name);
    MILLRACE_ASSIGN_OR_RETURN(const std::string sha256, Sha256OfFile(path));
    if (sha256 != file.sha256) return DataLoss(path, "its SHA-256 is not the manifest's");
  }
  return absl::OkStatus();
}

absl::StatusOr<TrainerState> ReadTrainerState(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/", kTrainerState);
  MILLRACE_ASSIGN_OR_RETURN(const json content, ReadJson(path));
  TrainerState state;
  try {
    state.step = content.at("step").get<int64_t>();
    state.total_tokens = content.at("total_tokens").get<int64_t>();
    state.cursor.epoch = content.at("cursor").at("epoch").get<int64_t>();
    state.cursor.position = content.at("cursor").at("position").get<int64_t>();
    state.evaluation_loss = OptionalNumber(content.at("evaluation_loss"));
    state.identity = content.at("identity").get<RunIdentity>();
  } catch (const json::exception& exception) {
    return DataLoss(path, exception.what());
  }
  return state;
}

absl::Status ReadHostState(const std::string& folder, const ModelSpec& model, ThreadPool& pool,
                           HostState* state) {
  // With a split master this sets low halves to zero; the next lines read them.
  MILLRACE_RETURN_IF_ERROR(LoadWeights(model, folder, pool, state));
  return ReadOptimizerState(absl::StrCat(folder, "/", kOptimizerState), state);
}

}  // namespace millrace
