// What a recipe costs in quality: the same small run, a byte-level llama on text, under each recipe
// and optimizer, as a Markdown table. Differences are to be read against what another seed makes.
//
//   bazel run -c opt //tests/bench/recipes -- --data /usr/share/common-licenses
#include <stdlib.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "engine/base/status_macros.h"
#include "engine/data/tokenizer.h"
#include "engine/model/slab_layout.h"
#include "engine/state/host_state.h"
#include "engine/train/job_model.h"
#include "engine/train/trainer.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string data = "/usr/share/common-licenses";
  int64_t steps = 300;
  int64_t seeds = 3;
  int64_t hidden = 64;
  int64_t layers = 3;
  int64_t sequence = 128;
  int64_t batch = 16;  // sequences a step
  int64_t threads = 2;
};

struct Losses {
  double train = 0;  // mean of the last tenth of the steps
  double evaluation = 0;
};

class Observer : public TrainObserver {
 public:
  explicit Observer(int64_t steps) : steps_(steps) {}
  void OnStep(const StepMetrics& metrics) override {
    if (metrics.step > steps_ - steps_ / 10) losses.train += metrics.loss / (steps_ / 10);
  }
  void OnEvaluation(const EvaluationMetrics& metrics) override { losses.evaluation = metrics.loss; }

  Losses losses;

 private:
  const int64_t steps_;
};

TrainSpec SpecOf(const Options& options, Recipe recipe, OptimizerKind optimizer, int64_t seed) {
  TrainSpec spec;
  spec.model_config_json = absl::StrFormat(
      R"({"model_type": "llama", "hidden_size": %d, "num_hidden_layers": %d,
          "num_attention_heads": 4, "intermediate_size": %d, "max_position_embeddings": %d})",
      options.hidden, options.layers, 3 * options.hidden, options.sequence);
  spec.data_path = options.data;
  spec.eval_fraction = 0.1;
  spec.sequence_length = options.sequence;
  spec.steps = options.steps;
  spec.tokens_per_step = options.batch * options.sequence;
  spec.tokens_per_micro_batch = spec.tokens_per_step;
  spec.seed = seed;
  spec.warmup_steps = options.steps / 20;
  spec.threads = options.threads;
  spec.recipe = recipe;
  spec.optimizer = optimizer;
  spec.checkpoint_every_steps = 0;
  spec.evaluate_max_sequences = 256;
  // Good ones for this run, found once under `full`.
  switch (optimizer) {
    case OptimizerKind::kAdamW:
      spec.learning_rate = 3e-3;
      break;
    case OptimizerKind::kSgd:
      spec.learning_rate = 0.1;
      spec.weight_decay = 0.003;
      break;
    case OptimizerKind::kLion:
      spec.learning_rate = 1e-3;
      spec.weight_decay = 0.3;
      break;
  }
  return spec;
}

absl::StatusOr<Losses> Run(const TrainSpec& spec) {
  std::string folder = (fs::temp_directory_path() / "recipes.XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) return absl::InternalError("no temporary folder");
  Observer observer(spec.steps);
  StopControl stop;
  const absl::Status status = Train(spec, folder, observer, stop).status();
  std::error_code error;
  fs::remove_all(folder, error);
  MILLRACE_RETURN_IF_ERROR(status);
  return observer.losses;
}

// What a HostState takes of each parameter.
absl::StatusOr<double> BytesAParameter(const TrainSpec& spec) {
  MILLRACE_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                            MakeTokenizer(spec.tokenizer));
  std::vector<FieldProblem> problems;
  const auto model = MakeJobModel(spec, tokenizer->vocab_size(), &problems);
  MILLRACE_RETURN_IF_ERROR(StatusOf(problems));
  const std::vector<SlabLayout> layouts = MakeSlabLayouts(*model);
  double parameters = 0, bytes = 0;
  for (const SlabLayout& layout : layouts) parameters += static_cast<double>(layout.count);
  const DType compute = spec.recipe == Recipe::kFp32 ? DType::kF32 : DType::kBF16;
  for (const MemoryPool& pool : HostStateMemory(layouts, spec.recipe, compute, spec.optimizer)) {
    bytes += static_cast<double>(pool.bytes);
  }
  return bytes / parameters;
}

struct Spread {
  double mean = 0, half_range = 0;
};
Spread SpreadOf(const std::vector<double>& values) {
  Spread spread;
  for (double value : values) spread.mean += value / static_cast<double>(values.size());
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  spread.half_range = (*most - *least) / 2;
  return spread;
}

absl::Status Compare(const Options& options) {
  std::printf(
      "| optimizer | recipe | bytes a parameter | train loss | evaluation loss | evaluation loss "
      "beside `full`, same seeds |\n| --- | --- | --- | --- | --- | --- |\n");
  for (OptimizerKind optimizer :
       {OptimizerKind::kAdamW, OptimizerKind::kLion, OptimizerKind::kSgd}) {
    std::vector<double> full;
    for (Recipe recipe : {Recipe::kFull, Recipe::kLean, Recipe::kTiny, Recipe::kFp32}) {
      std::vector<double> train, evaluation, beside;
      for (int64_t seed = 1; seed <= options.seeds; ++seed) {
        MILLRACE_ASSIGN_OR_RETURN(const Losses losses,
                                  Run(SpecOf(options, recipe, optimizer, seed)));
        train.push_back(losses.train);
        evaluation.push_back(losses.evaluation);
        if (recipe == Recipe::kFull) full.push_back(losses.evaluation);
        beside.push_back(losses.evaluation - full[static_cast<size_t>(seed - 1)]);
      }
      MILLRACE_ASSIGN_OR_RETURN(const double bytes,
                                BytesAParameter(SpecOf(options, recipe, optimizer, 1)));
      const Spread t = SpreadOf(train), e = SpreadOf(evaluation), b = SpreadOf(beside);
      std::printf("| %s | `%s` | %.3g | %.4f ± %.4f | %.4f ± %.4f | ",
                  std::string(NameOf(optimizer)).c_str(), std::string(NameOf(recipe)).c_str(),
                  bytes, t.mean, t.half_range, e.mean, e.half_range);
      std::printf(recipe == Recipe::kFull ? "|\n" : "%+.4f ± %.4f |\n", b.mean, b.half_range);
      std::fflush(stdout);
    }
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Trains the same small run under each recipe and optimizer; prints a table.");
  app.add_option("--data", options.data, "text: a file or folder");
  app.add_option("--steps", options.steps)->check(CLI::Range(10, 1'000'000));
  app.add_option("--seeds", options.seeds)->check(CLI::PositiveNumber);
  app.add_option("--hidden", options.hidden)->check(CLI::PositiveNumber);
  app.add_option("--layers", options.layers)->check(CLI::PositiveNumber);
  app.add_option("--sequence", options.sequence)->check(CLI::PositiveNumber);
  app.add_option("--batch", options.batch)->check(CLI::PositiveNumber);
  app.add_option("--threads", options.threads)->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = Compare(options);
  if (!status.ok()) std::cerr << status.message() << "\n";
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::Main(argc, argv); }
