// How fast a model directory is loaded, beside a plain loop that reads the same files into memory
// of their size: what the page cache gives, or with --cold the disk.
//
//   bazel run //tests/bench/load -- --folder /var/tmp/load-1.1b
//
// Writes the directory where it is missing: a preset's shape, random weights, bf16. With
// --round_trip writes what was loaded once more and compares the files byte for byte.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <iostream>
#include <limits>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/base/aligned_buffer.h"
#include "engine/base/file.h"
#include "engine/base/status_macros.h"
#include "engine/base/thread_pool.h"
#include "engine/model/model_directory.h"
#include "engine/state/host_state.h"
#include "engine/state/initial_weights.h"
#include "engine/state/load_weights.h"
#include "tests/bench/train/presets.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string preset = "llama-1.1b", folder;
  int threads = 2, repeats = 5;
  bool cold = false, round_trip = false;
};

struct RecipeName {
  const char* name;
  Recipe recipe;
};
// The split master and bf16 alone; optimizer state as small as it gets.
constexpr RecipeName kRecipes[] = {{"tiny", Recipe::kTiny}, {"lean", Recipe::kLean}};

std::vector<std::string> WeightFiles(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

int64_t TotalBytes(const std::vector<std::string>& files) {
  int64_t bytes = 0;
  for (const std::string& file : files) bytes += static_cast<int64_t>(fs::file_size(file));
  return bytes;
}

void DropFromCache(const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    const int fd = open(file.c_str(), O_RDONLY | O_CLOEXEC);
    fdatasync(fd);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
  }
}

// The best of some runs of one thing, in seconds.
struct Best {
  double seconds = std::numeric_limits<double>::infinity();

  template <typename Run>
  absl::Status Measure(const Options& options, const std::vector<std::string>& files, Run run) {
    if (options.cold) DropFromCache(files);
    const absl::Time begin = absl::Now();
    MILLRACE_RETURN_IF_ERROR(run());
    seconds = std::min(seconds, absl::ToDoubleSeconds(absl::Now() - begin));
    return absl::OkStatus();
  }
};

// Reads all of `file` to `out` in order, a MiB at a time, by all threads of `pool`.
absl::Status ReadPlainly(const std::string& file, ThreadPool& pool, char* out) {
  constexpr int64_t kBlock = int64_t{1} << 20;
  const int64_t bytes = static_cast<int64_t>(fs::file_size(file));
  const int fd = open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return ErrnoToStatus(errno, "open", file);
  std::atomic<int64_t> next{0};
  std::atomic<bool> failed{false};
  pool.Run([&](int) {
    for (int64_t begin = next.fetch_add(kBlock); begin < bytes; begin = next.fetch_add(kBlock)) {
      const int64_t wanted = std::min(kBlock, bytes - begin);
      if (pread(fd, out + begin, static_cast<size_t>(wanted), begin) != wanted) failed = true;
    }
  });
  close(fd);
  return failed ? absl::InternalError(absl::StrCat("cannot read ", file)) : absl::OkStatus();
}

absl::Status ReadAllPlainly(const std::vector<std::string>& files, ThreadPool& pool, char* out) {
  for (const std::string& file : files) {
    MILLRACE_RETURN_IF_ERROR(ReadPlainly(file, pool, out));
    out += fs::file_size(file);
  }
  return absl::OkStatus();
}

absl::Status WriteModel(const ModelSpec& model, const HostState& state, const std::string& folder) {
  fs::create_directories(folder);
  return WriteModelDirectory(
             model, state.layouts(),
             [&](int64_t unit, int64_t offset, absl::Span<float> out) {
               state.ReadMaster(static_cast<int>(unit), offset, out);
               return absl::OkStatus();
             },
             folder)
      .status();
}

absl::Status MakeFolder(const Options& options) {
  MILLRACE_ASSIGN_OR_RETURN(const ModelSpec model, PresetModel(options.preset));
  ThreadPool pool(options.threads);
  MILLRACE_ASSIGN_OR_RETURN(
      const std::unique_ptr<HostState> state,
      HostState::Create(MakeSlabLayouts(model), Recipe::kTiny, DType::kBF16, pool));
  MILLRACE_RETURN_IF_ERROR(DrawWeights(model, 7, pool, state.get()));
  return WriteModel(model, *state, options.folder);
}

int64_t PeakBytes() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{1024} * usage.ru_maxrss;
}

absl::Status CompareFiles(const std::string& folder, const std::string& again) {
  for (const auto& entry : fs::directory_iterator(again)) {
    const std::string name = entry.path().filename();
    MILLRACE_ASSIGN_OR_RETURN(const std::string before, Sha256OfFile(folder + "/" + name));
    MILLRACE_ASSIGN_OR_RETURN(const std::string after, Sha256OfFile(again + "/" + name));
    std::cout << absl::StreamFormat("%s: %s\n", name, before == after ? "the same" : "DIFFERENT");
  }
  return absl::OkStatus();
}

// What is compared takes turns, so that it shares what else the machine does.
absl::Status Load(const Options& options, const RecipeName& recipe,
                  const std::vector<std::string>& files) {
  MILLRACE_ASSIGN_OR_RETURN(const ModelSpec model, ReadModelDirectoryConfig(options.folder));
  ThreadPool alone(1), pool(options.threads);
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<HostState> state,
                            HostState::Create(MakeSlabLayouts(model), recipe.recipe, DType::kBF16,
                                              pool, OptimizerKind::kSgd));
  const int64_t bytes = TotalBytes(files);
  MILLRACE_ASSIGN_OR_RETURN(AlignedBuffer buffer,
                            AlignedBuffer::Allocate(static_cast<size_t>(bytes), "plain reading"));
  std::fill_n(buffer.as<char>(), buffer.size(), '\1');
  const int64_t peak = PeakBytes();
  Best one, many, load;
  for (int i = 0; i < options.repeats; ++i) {
    MILLRACE_RETURN_IF_ERROR(one.Measure(
        options, files, [&] { return ReadAllPlainly(files, alone, buffer.as<char>()); }));
    MILLRACE_RETURN_IF_ERROR(many.Measure(
        options, files, [&] { return ReadAllPlainly(files, pool, buffer.as<char>()); }));
    MILLRACE_RETURN_IF_ERROR(load.Measure(
        options, files, [&] { return LoadWeights(model, options.folder, pool, state.get()); }));
  }
  const auto speed = [&](const Best& best) { return bytes * 1e-9 / best.seconds; };
  std::cout << absl::StreamFormat(
      "%s: plain loop %.2f GB/s, on %d threads %.2f; load on %d %.2f: %.0f%% and %.0f%%; "
      "%.1f MiB more memory\n",
      recipe.name, speed(one), options.threads, speed(many), options.threads, speed(load),
      100 * one.seconds / load.seconds, 100 * many.seconds / load.seconds,
      static_cast<double>(PeakBytes() - peak) / 1048576);
  if (!options.round_trip) return absl::OkStatus();
  const std::string again = options.folder + ".again";
  MILLRACE_RETURN_IF_ERROR(WriteModel(model, *state, again));
  MILLRACE_RETURN_IF_ERROR(CompareFiles(options.folder, again));
  fs::remove_all(again);
  return absl::OkStatus();
}

absl::Status Run(const Options& options) {
  if (!fs::exists(options.folder)) MILLRACE_RETURN_IF_ERROR(MakeFolder(options));
  const std::vector<std::string> files = WeightFiles(options.folder);
  std::cout << absl::StreamFormat("%s: %.2f GB, %s\n", options.folder, TotalBytes(files) * 1e-9,
                                  options.cold ? "not in the page cache" : "in the page cache");
  for (const RecipeName& recipe : kRecipes) {
    MILLRACE_RETURN_IF_ERROR(Load(options, recipe, files));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  millrace::Options options;
  CLI::App app("How fast a model directory is loaded");
  app.add_option("--preset", options.preset)->check(CLI::IsMember(millrace::PresetNames()));
  app.add_option("--folder", options.folder, "the directory; made if it is missing")->required();
  app.add_option("--threads", options.threads)->check(CLI::PositiveNumber);
  app.add_option("--repeats", options.repeats, "the best counts")->check(CLI::PositiveNumber);
  app.add_flag("--cold", options.cold, "drop the files from the page cache before each run");
  app.add_flag("--round_trip", options.round_trip, "write what was loaded, and compare");
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = millrace::Run(options);
  if (status.ok()) return 0;
  std::cerr << status << "\n";
  return 1;
}
