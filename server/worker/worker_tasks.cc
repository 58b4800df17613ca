#include "server/worker/worker_tasks.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "engine/base/status_macros.h"
#include "engine/data/bpe_trainer.h"
#include "engine/model/gguf_quants.h"
#include "engine/train/checkpoint_export.h"
#include "server/worker/exit_codes.h"

namespace millrace {
namespace {

constexpr int kNiceness = 10;
constexpr int kOutOfMemoryScore = 900;
constexpr auto kTellEvery = std::chrono::milliseconds(200);

void Say(const nlohmann::json& what) {
  const std::string line =
      what.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  fwrite(line.data(), 1, line.size(), stdout);
  fflush(stdout);
}

// Tells how far the work is, not too often.
class Progress {
 public:
  void Tell(const nlohmann::json& progress) {
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ < kTellEvery) return;
    last_ = now;
    Say({{"progress", progress}});
  }

 private:
  std::chrono::steady_clock::time_point last_{};
};

int Answer(const absl::StatusOr<nlohmann::json>& result) {
  if (result.ok()) {
    Say({{"result", *result}});
    return static_cast<int>(WorkerExitCode::kDone);
  }
  Say({{"error",
        {{"code", static_cast<int>(result.status().code())},
         {"message", std::string(result.status().message())}}}});
  return static_cast<int>(WorkerExitCode::kError);
}

struct ExportFlags {
  std::string checkpoint, type = "BF16", name, out;
};

absl::StatusOr<nlohmann::json> Export(const ExportFlags& flags) {
  GgufCheckpointOptions options;
  options.name = flags.name;
  for (const GgmlType type : {GgmlType::kF32, GgmlType::kF16, GgmlType::kBF16, GgmlType::kQ8_0}) {
    if (InfoOf(type).name == flags.type) options.type = type;
  }
  Progress progress;
  options.on_progress = [&progress](int64_t done, int64_t total) {
    progress.Tell({{"done", done}, {"total", total}});
  };
  absl::StatusOr<WrittenFile> file = ExportGguf(flags.checkpoint, flags.out, options);
  if (!file.ok()) return file.status();
  return nlohmann::json{{"size_bytes", file->size_bytes}, {"sha256", file->sha256}};
}

void AddExport(CLI::App* app, ExportFlags* flags) {
  CLI::App* command = app->add_subcommand("export", "write a checkpoint as a GGUF file");
  command->add_option("--checkpoint", flags->checkpoint, "its folder")->required();
  command->add_option("--type", flags->type, "of matrices")
      ->check(CLI::IsMember({"F32", "F16", "BF16", "Q8_0"}));
  command->add_option("--name", flags->name, "of the model");
  command->add_option("--out", flags->out, "the file")->required();
}

struct TrainFlags {
  std::string dataset, out;
  BpeTrainerOptions options;
};

absl::StatusOr<nlohmann::json> TrainTokenizer(const TrainFlags& flags) {
  Progress progress;
  BpeTrainerOptions options = flags.options;
  options.threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  absl::StatusOr<TrainedBpe> trained =
      TrainBpe(flags.dataset, options, [&progress](const BpeTrainerProgress& now) {
        const bool reading = now.phase == BpeTrainerProgress::Phase::kReading;
        progress.Tell(
            {{"phase", reading ? "reading" : "merging"}, {"done", now.done}, {"total", now.total}});
        return absl::OkStatus();
      });
  if (!trained.ok()) return trained.status();
  MILLRACE_RETURN_IF_ERROR(WriteTokenizer(*trained, flags.out));
  return nlohmann::json{{"vocab_size", trained->vocab_size}};
}

void AddTrainTokenizer(CLI::App* app, TrainFlags* flags) {
  CLI::App* command = app->add_subcommand("train-tokenizer", "train a byte-level BPE");
  command->add_option("--dataset", flags->dataset, "its folder")->required();
  command->add_option("--out", flags->out, "folder of the tokenizer")->required();
  command->add_option("--vocab-size", flags->options.vocab_size, "tokens in all")->required();
  command->add_option("--min-frequency", flags->options.min_frequency, "of pairs");
  // Values of lists lose brackets around them, and `[PAD]` is a usual token.
  command->add_option("--special-token", flags->options.special_tokens, "may be repeated")
      ->allow_extra_args(false);
  command->add_option("--split", flags->options.split, "gpt2 or llama3");
}

}  // namespace

bool IsWorkerTask(absl::string_view word) { return word == "export" || word == "train-tokenizer"; }

int RunWorkerTask(int argc, char** argv) {
  // A daemon that is gone wants no answer, and should live longer than its helpers.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setpriority(PRIO_PROCESS, 0, kNiceness);
  std::ofstream("/proc/self/oom_score_adj") << kOutOfMemoryScore;
  CLI::App app("Does work for millraced.", "millrace-worker");
  app.require_subcommand(1);
  ExportFlags export_flags;
  AddExport(&app, &export_flags);
  TrainFlags train_flags;
  AddTrainTokenizer(&app, &train_flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const bool is_help = app.exit(error) == 0;
    return static_cast<int>(is_help ? WorkerExitCode::kDone : WorkerExitCode::kUsage);
  }
  return Answer(app.got_subcommand("export") ? Export(export_flags) : TrainTokenizer(train_flags));
}

}  // namespace millrace
