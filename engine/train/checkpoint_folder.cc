#include "engine/train/checkpoint_folder.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/file.h"
#include "engine/base/status_macros.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

// A checkpoint that makes room for another of its step (WriteCheckpoint).
constexpr absl::string_view kReplaced = ".replaced-";

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  return names;
}

// Folders of checkpoints are named by their step, without leading zeros.
bool IsStep(const std::string& name) {
  int64_t step;
  return absl::SimpleAtoi(name, &step) && step >= 0 && absl::StrCat(step) == name;
}

// Newest first.
std::vector<int64_t> StepsIn(const std::string& checkpoints) {
  std::vector<int64_t> steps;
  for (const std::string& name : NamesIn(checkpoints)) {
    if (IsStep(name)) steps.push_back(std::stoll(name));
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

absl::StatusOr<CheckpointInfo> ReadCheckpoint(const std::string& checkpoints, int64_t step) {
  const std::string folder = absl::StrCat(checkpoints, "/", step);
  MILLRACE_ASSIGN_OR_RETURN(CheckpointInfo info, ReadManifest(folder));
  if (info.step != step) {
    return absl::DataLossError(
        absl::StrCat(folder, " is damaged: its manifest is of step ", info.step));
  }
  return info;
}

absl::Status RemoveAll(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  return error ? ErrnoToStatus(error.value(), "remove", path) : absl::OkStatus();
}

}  // namespace

std::vector<CheckpointInfo> ListCheckpoints(const std::string& checkpoints) {
  std::vector<CheckpointInfo> complete;
  for (int64_t step : StepsIn(checkpoints)) {
    absl::StatusOr<CheckpointInfo> info = ReadCheckpoint(checkpoints, step);
    if (info.ok()) complete.push_back(*std::move(info));
  }
  return complete;
}

absl::StatusOr<std::optional<CheckpointInfo>> NewestIntactCheckpoint(
    const std::string& checkpoints, absl::FunctionRef<void(absl::string_view)> warn) {
  absl::Status damage;
  for (int64_t step : StepsIn(checkpoints)) {
    absl::StatusOr<CheckpointInfo> info = ReadCheckpoint(checkpoints, step);
    absl::Status status = info.status();
    if (status.ok()) status = VerifyHashes(*info);
    if (status.ok()) {
      if (!damage.ok()) {
        warn(absl::StrCat(damage.message(), "; going on from the checkpoint of step ", step));
      }
      return std::optional<CheckpointInfo>(*std::move(info));
    }
    if (status.code() == absl::StatusCode::kNotFound) continue;
    damage.Update(status);
  }
  if (!damage.ok()) return damage;
  return std::optional<CheckpointInfo>();
}

absl::Status RemoveLeftovers(const std::string& checkpoints) {
  for (const std::string& name : NamesIn(checkpoints)) {
    const std::string path = absl::StrCat(checkpoints, "/", name);
    if (absl::StartsWith(name, kReplaced)) {
      const std::string place = absl::StrCat(checkpoints, "/", name.substr(kReplaced.size()));
      std::error_code error;
      if (!fs::exists(place, error)) {
        if (std::rename(path.c_str(), place.c_str()) != 0) {
          return ErrnoToStatus(errno, "bring back checkpoint", place);
        }
        MILLRACE_RETURN_IF_ERROR(SyncFolder(checkpoints));
        continue;
      }
    }
    const bool unfinished = absl::StartsWith(name, ".writing-") ||
                            absl::StartsWith(name, ".removing-") ||
                            absl::StartsWith(name, kReplaced);
    const bool without_manifest =
        IsStep(name) && ReadManifest(path).status().code() == absl::StatusCode::kNotFound;
    if (unfinished || without_manifest) MILLRACE_RETURN_IF_ERROR(RemoveAll(path));
  }
  return absl::OkStatus();
}

std::vector<int64_t> StepsToRemove(const std::vector<CheckpointInfo>& complete,
                                   const Retention& retention) {
  std::vector<int64_t> steps;
  std::vector<std::pair<double, int64_t>> evaluated;
  for (const CheckpointInfo& info : complete) {
    steps.push_back(info.step);
    if (info.evaluation_loss) evaluated.push_back({*info.evaluation_loss, info.step});
  }
  std::sort(steps.rbegin(), steps.rend());
  std::sort(evaluated.begin(), evaluated.end());
  std::set<int64_t> kept;
  const size_t last = static_cast<size_t>(std::max<int64_t>(retention.keep_last, 1));
  const size_t best = static_cast<size_t>(std::max<int64_t>(retention.keep_best, 0));
  for (size_t i = 0; i < std::min(last, steps.size()); ++i) kept.insert(steps[i]);
  for (size_t i = 0; i < std::min(best, evaluated.size()); ++i) kept.insert(evaluated[i].second);
  std::vector<int64_t> removed;
  for (int64_t step : steps) {
    if (!kept.contains(step)) removed.push_back(step);
  }
  return removed;
}

absl::Status ApplyRetention(const std::string& checkpoints, const Retention& retention) {
  for (int64_t step : StepsToRemove(ListCheckpoints(checkpoints), retention)) {
    const std::string folder = absl::StrCat(checkpoints, "/", step);
    const std::string removed = absl::StrCat(checkpoints, "/.removing-", step);
    MILLRACE_RETURN_IF_ERROR(RemoveAll(removed));
    if (std::rename(folder.c_str(), removed.c_str()) != 0) {
      return ErrnoToStatus(errno, "remove checkpoint", folder);
    }
    MILLRACE_RETURN_IF_ERROR(RemoveAll(removed));
  }
  return absl::OkStatus();
}

}  // namespace millrace
