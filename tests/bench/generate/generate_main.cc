// Tokens a second of a model that goes on from prompts, by number of texts side by side.
//
//   bazel run //tests/bench/generate -- --model MODEL --compute bf16 --texts 8 --tokens 128
//
// With --print, the greedy tokens of each line of standard input, as JSON, to hold against others.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "engine/train/inference_model.h"
#include "engine/train/system_memory.h"
#include "engine/train/text_generator.h"

namespace millrace {
namespace {

int Main(int argc, char** argv) {
  CLI::App app("Measures generation");
  std::string path, compute = "bf16";
  int texts = 1, tokens = 128, prompt_tokens = 16, runs = 3;
  int threads = static_cast<int>(std::thread::hardware_concurrency());
  bool print = false;
  app.add_option("--model", path, "model directory or GGUF file")->required();
  app.add_option("--compute", compute)->check(CLI::IsMember({"bf16", "f32"}));
  app.add_option("--texts", texts, "side by side");
  app.add_option("--tokens", tokens, "of each text");
  app.add_option("--prompt-tokens", prompt_tokens);
  app.add_option("--threads", threads);
  app.add_option("--runs", runs, "the best counts");
  app.add_flag("--print", print, "greedy tokens of prompts on standard input");
  CLI11_PARSE(app, argc, argv);

  const auto model = InferenceModel::Load(path, compute == "f32" ? DType::kF32 : DType::kBF16,
                                          threads, [] { return absl::OkStatus(); });
  if (!model.ok()) {
    std::fprintf(stderr, "%s\n", std::string(model.status().message()).c_str());
    return 1;
  }
  GenerateOptions options{.max_tokens = tokens, .sampling = {.temperature = 0}};
  std::vector<std::vector<int32_t>> prompts;
  if (print) {
    for (std::string line; std::getline(std::cin, line);) {
      prompts.push_back(EncodePrompt(*(*model)->tokenizer, line));
    }
    runs = 1;
  } else {
    options.ignore_end = true;
    for (int i = 0; i < texts; ++i) {
      std::vector<int32_t>& prompt = prompts.emplace_back();
      for (int j = 0; j < prompt_tokens; ++j) prompt.push_back(100 + (7 * i + 13 * j) % 1000);
    }
  }
  std::vector<std::vector<int32_t>> outcomes(prompts.size());
  double best = 0, best_prompt = 0;
  // Of the first text's tokens, one a pass: what others on the machine disturb least.
  double fastest_pass = std::numeric_limits<double>::infinity();
  for (int run = 0; run < runs; ++run) {
    bool of_prompt = true;
    std::chrono::steady_clock::time_point last;
    const auto figures =
        GenerateTexts(**model, prompts, options, FreeMemoryBytes(), nullptr, [&](TextPiece piece) {
          if (print) {
            outcomes[piece.prompt].insert(outcomes[piece.prompt].end(), piece.tokens.begin(),
                                          piece.tokens.end());
          }
          if (piece.prompt == 0) {
            const auto now = std::chrono::steady_clock::now();
            const double seconds = std::chrono::duration<double>(now - last).count();
            last = now;
            if (!std::exchange(of_prompt, false)) fastest_pass = std::min(fastest_pass, seconds);
          }
          return absl::OkStatus();
        });
    if (!figures.ok()) {
      std::fprintf(stderr, "%s\n", std::string(figures.status().message()).c_str());
      return 1;
    }
    // The first token of each text comes with its prompt.
    const auto later = figures->generated_tokens - static_cast<int64_t>(prompts.size());
    best = std::max(best, static_cast<double>(later) / figures->generation_seconds);
    best_prompt = std::max(best_prompt,
                           static_cast<double>(figures->prompt_tokens) / figures->prompt_seconds);
  }
  if (print) {
    for (const auto& outcome : outcomes) std::printf("[%s]\n", absl::StrJoin(outcome, ",").c_str());
    return 0;
  }
  std::printf("%s, %d texts: %.1f tokens/s (fastest pass %.1f), prompts %.0f tokens/s\n",
              compute.c_str(), texts, best, texts / fastest_pass, best_prompt);
  return 0;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::Main(argc, argv); }
