#include "engine/train/job_shortfall.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace millrace {
namespace {

constexpr int64_t kKiB = int64_t{1} << 10, kMiB = int64_t{1} << 20, kGiB = int64_t{1} << 30;
// Beyond this nobody has memory.
constexpr int64_t kMostBytes = 16384 * kGiB;
// Changes that are told.
constexpr size_t kMostChanges = 4;
// Nobody trains on shorter sequences, tokens.
constexpr int64_t kShortest = 64;

// The smallest value in [low, high] that is good, where all above a good one are good too.
std::optional<int64_t> Smallest(int64_t low, int64_t high,
                                const std::function<bool(int64_t)>& good) {
  if (high < low || !good(high)) return std::nullopt;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (good(middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return high;
}

// The last value that is good, of values in rising order, where all below a good one are good too.
std::optional<int64_t> LargestOf(const std::vector<int64_t>& values,
                                 const std::function<bool(int64_t)>& good) {
  const auto end = std::partition_point(values.begin(), values.end(), good);
  if (end == values.begin()) return std::nullopt;
  return *std::prev(end);
}

// As job files have it, "300MiB" or "12GiB": the smallest size in (low, most], in whole MiB or GiB,
// that is good.
std::optional<std::string> SmallestSize(int64_t low, int64_t most,
                                        const std::function<bool(int64_t)>& good) {
  const auto smallest = [&](int64_t from, int64_t to, int64_t unit) {
    return Smallest(from / unit + 1, to / unit, [&](int64_t n) { return good(n * unit); });
  };
  if (const auto n = smallest(low, std::min(most, kGiB - kMiB), kMiB))
    return absl::StrCat(*n, "MiB");
  if (const auto n = smallest(low, most, kGiB)) return absl::StrCat(*n, "GiB");
  return std::nullopt;
}

class Changes {
 public:
  Changes(const TrainSpec& spec, const ModelSpec& model, const JobTarget& target)
      : spec_(spec), model_(model), target_(target) {}

  // In the order in which people would try them.
  std::vector<std::string> Find() {
    Recipes();
    MicroBatch();
    Budgets();
    SequenceLength();
    NoClip();
    Layers();
    return std::move(found_);
  }

 private:
  void Recipes() {
    for (Recipe recipe : {Recipe::kLean, Recipe::kTiny}) {
      if (spec_.recipe == recipe || spec_.recipe == Recipe::kFp32) continue;
      if (recipe == Recipe::kTiny && target_.compute != DType::kBF16) continue;
      if (recipe == Recipe::kLean && spec_.recipe == Recipe::kTiny) continue;
      TrainSpec other = spec_;
      other.recipe = recipe;
      if (!JobFits(other, model_, target_)) continue;
      found_.push_back(absl::StrCat("precision.recipe: ", NameOf(recipe)));
      return;
    }
  }

  void MicroBatch() {
    if (!spec_.tokens_per_micro_batch) return;
    std::vector<int64_t> sizes =
        MultiplesDividing(*spec_.tokens_per_micro_batch, spec_.sequence_length);
    if (!sizes.empty()) sizes.pop_back();
    const std::optional<int64_t> size = LargestOf(sizes, [&](int64_t tokens) {
      TrainSpec other = spec_;
      other.tokens_per_micro_batch = tokens;
      return JobFits(other, model_, target_);
    });
    if (size) found_.push_back(absl::StrCat("train.tokens_per_micro_batch: ", *size));
  }

  // What holds the job is its budget or the machine, whichever gives less: raising that one helps,
  // as far as the other goes.
  void Budgets() {
    const int64_t shared = target_.own() ? 1 : 0;  // both budgets lie in the same memory
    const auto& host_budget = spec_.host_budget_bytes;
    const auto& device_budget = spec_.device_budget_bytes;
    const bool by_host_budget = host_budget && *host_budget < target_.most_host_bytes;
    const int64_t most_host = by_host_budget
                                  ? target_.most_host_bytes - shared * device_budget.value_or(0)
                                  : host_budget.value_or(kMostBytes);
    if (const auto size = SmallestSize(target_.host_bytes, most_host, [&](int64_t bytes) {
          JobTarget other = target_;
          other.host_bytes = bytes;
          if (target_.own() && !by_host_budget) {
            other.device_bytes = std::min(bytes, device_budget.value_or(bytes));
          }
          return JobFits(spec_, model_, other);
        })) {
      found_.push_back(
          by_host_budget ? absl::StrCat("memory.host_budget: ", *size)
                         : absl::StrCat("a machine that gives the job ", *size, " of host memory"));
    }
    const bool by_device_budget = device_budget && *device_budget < target_.most_device_bytes;
    // Else a machine with more memory has more of the one, and so of the other.
    if (target_.own() && !by_device_budget) return;
    const int64_t most_device = by_device_budget
                                    ? target_.most_device_bytes - shared * host_budget.value_or(0)
                                    : kMostBytes;
    if (const auto size = SmallestSize(target_.device_bytes, most_device, [&](int64_t bytes) {
          JobTarget other = target_;
          other.device_bytes = bytes;
          return JobFits(spec_, model_, other);
        })) {
      found_.push_back(by_device_budget ? absl::StrCat("memory.device_budget: ", *size)
                                        : absl::StrCat("a device with ", *size, " for the job"));
    }
  }

  void SequenceLength() {
    std::vector<int64_t> lengths;
    for (int64_t length : MultiplesDividing(spec_.sequence_length, 1)) {
      if (length >= kShortest && length < spec_.sequence_length) lengths.push_back(length);
    }
    const std::optional<int64_t> length = LargestOf(lengths, [&](int64_t tokens) {
      TrainSpec other = spec_;
      other.sequence_length = tokens;
      return JobFits(other, model_, target_);
    });
    if (length) found_.push_back(absl::StrCat("data.sequence_length: ", *length));
  }

  void NoClip() {
    if (spec_.clip_norm <= 0) return;
    TrainSpec other = spec_;
    other.clip_norm = 0;
    if (JobFits(other, model_, target_)) {
      found_.push_back("train.clip_norm: 0 (gradients then need not wait for the norm)");
    }
  }

  void Layers() {
    std::vector<int64_t> counts;
    for (int64_t layers = 1; layers < model_.num_layers; ++layers) counts.push_back(layers);
    const std::optional<int64_t> layers = LargestOf(counts, [&](int64_t count) {
      ModelSpec other = model_;
      other.num_layers = count;
      return JobFits(spec_, other, target_);
    });
    if (layers) {
      found_.push_back(absl::StrCat(*layers, *layers == 1 ? " layer" : " layers", " instead of ",
                                    model_.num_layers));
    }
  }

  const TrainSpec& spec_;
  const ModelSpec& model_;
  const JobTarget& target_;
  std::vector<std::string> found_;
};

}  // namespace

std::string BytesText(int64_t bytes) {
  const double size = static_cast<double>(bytes);
  if (bytes < kKiB) return absl::StrCat(bytes, bytes == 1 ? " byte" : " bytes");
  if (bytes < kMiB) return absl::StrFormat("%.0f KiB", std::ceil(size / kKiB));
  if (bytes < kGiB) return absl::StrFormat("%.0f MiB", std::ceil(size / kMiB));
  return absl::StrFormat("%.1f GiB", size / static_cast<double>(kGiB));
}

Shortfall ExplainShortfall(const TrainSpec& spec, const ModelSpec& model, const JobTarget& target) {
  Shortfall shortfall;
  // The least that any shape needs.
  std::optional<JobStep> step;
  for (const StepShape& shape : ShapesOf(spec, model, target, std::nullopt)) {
    const JobStep other(spec, model, target, shape);
    const LeastMemory least = other.Least();
    if (!step || least.total_bytes < shortfall.least.total_bytes) {
      step.emplace(other);
      shortfall.least = least;
    }
  }
  const int64_t device = static_cast<int64_t>(shortfall.least.device_bytes);
  int64_t host = step->host_bytes() + static_cast<int64_t>(shortfall.least.host_bytes);
  if (device > target.device_bytes) {
    shortfall.field = "memory.device_budget";
    absl::StrAppend(&shortfall.text, "the device lacks ", BytesText(device - target.device_bytes),
                    ": a step needs ", BytesText(device), " at least and may take ",
                    BytesText(target.device_bytes));
  }
  // On a processor the device's memory is the host's.
  if (target.own()) {
    host = step->host_bytes() + static_cast<int64_t>(shortfall.least.total_bytes);
  }
  if (host > target.host_bytes) {
    if (shortfall.field.empty()) shortfall.field = "memory.host_budget";
    absl::StrAppend(&shortfall.text, shortfall.text.empty() ? "" : "; ", "the host lacks ",
                    BytesText(host - target.host_bytes), ": weights, optimizer state, gradients",
                    target.own() ? ", the device's share" : "", " and the rest take ",
                    BytesText(host), " at least and may take ", BytesText(target.host_bytes));
  }
  std::vector<std::string> changes = Changes(spec, model, target).Find();
  if (changes.size() > kMostChanges) changes.resize(kMostChanges);
  if (changes.empty()) {
    absl::StrAppend(&shortfall.text, ". No single change of the job makes it fit");
  } else {
    absl::StrAppend(&shortfall.text,
                    ". Any one of these makes it fit: ", absl::StrJoin(changes, "; "));
  }
  return shortfall;
}

}  // namespace millrace
