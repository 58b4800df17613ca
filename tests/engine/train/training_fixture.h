// A job of seconds on real text, and an observer that remembers.
#ifndef MILLRACE_TESTS_ENGINE_TRAIN_TRAINING_FIXTURE_H_
#define MILLRACE_TESTS_ENGINE_TRAIN_TRAINING_FIXTURE_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "engine/train/stop_control.h"
#include "engine/train/train_events.h"
#include "engine/train/train_spec.h"

namespace millrace {

// Keeps all it is told; `on_step` runs after each step.
struct RecordingObserver : TrainObserver {
  void OnPrepared(const TrainSpec& spec, const JobPlan& plan, int64_t step) override {
    resolved = spec;
    start_step = step;
  }
  void OnStep(const StepMetrics& metrics) override {
    steps.push_back(metrics);
    if (on_step) on_step(metrics.step);
  }
  void OnEvaluation(const EvaluationMetrics& metrics) override { evaluations.push_back(metrics); }
  void OnCheckpoint(const CheckpointSaved& saved) override { checkpoints.push_back(saved); }
  void OnSample(const Sample& sample) override { samples.push_back(sample); }
  void OnTrace(const TraceSaved& trace) override { traces.push_back(trace); }
  void OnMemory(const MemoryUsage& usage) override { memory.push_back(usage); }
  void OnWarning(absl::string_view message) override { warnings.emplace_back(message); }

  std::function<void(int64_t step)> on_step;
  TrainSpec resolved;
  int64_t start_step = -1;
  std::vector<StepMetrics> steps;
  std::vector<EvaluationMetrics> evaluations;
  std::vector<CheckpointSaved> checkpoints;
  std::vector<Sample> samples;
  std::vector<TraceSaved> traces;
  std::vector<MemoryUsage> memory;
  std::vector<std::string> warnings;
};

inline std::string NewJobFolder() {
  std::string pattern = testing::TempDir() + "/job.XXXXXX";
  EXPECT_NE(mkdtemp(pattern.data()), nullptr);
  return pattern;
}

// Some 20 kB of text that repeats itself with small changes.
inline std::string WriteText(const std::string& folder) {
  const std::string path = folder + "/text.txt";
  std::ofstream file(path);
  for (int i = 0; i < 300; ++i) {
    file << "The mill wheel turned " << i % 7 << " times before the stream ran dry again.\n";
  }
  return path;
}

// A two-layer byte-level llama; 12 steps of two micro-batches of two sequences of 32 tokens.
inline TrainSpec SmallJob(const std::string& data_path) {
  TrainSpec spec;
  spec.model_config_json = R"({"model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2,
      "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 64,
      "max_position_embeddings": 64})";
  spec.data_path = data_path;
  spec.eval_fraction = 0.1;
  spec.sequence_length = 32;
  spec.steps = 12;
  spec.tokens_per_step = 128;
  spec.tokens_per_micro_batch = 64;
  spec.seed = 7;
  spec.learning_rate = 1e-2;
  spec.warmup_steps = 2;
  spec.threads = 2;
  spec.checkpoint_every_steps = 4;
  spec.evaluate_max_sequences = 4;
  return spec;
}

}  // namespace millrace

#endif  // MILLRACE_TESTS_ENGINE_TRAIN_TRAINING_FIXTURE_H_
