// Trains a tokenizer for tests/golden/compare_bpe_trainer.py.
//
//   train_bpe DATASET FOLDER VOCAB_SIZE MIN_FREQUENCY SPLIT THREADS
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "engine/data/bpe_trainer.h"

int main(int argc, char** argv) {
  if (argc != 7) return 2;
  using Progress = millrace::BpeTrainerProgress;
  const auto begin = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  double read_seconds = 0;
  const auto trained = millrace::TrainBpe(argv[1],
                                          {.vocab_size = std::atoll(argv[3]),
                                           .min_frequency = std::atoll(argv[4]),
                                           .split = argv[5],
                                           .threads = std::atoi(argv[6])},
                                          [&](const Progress& progress) {
                                            if (progress.phase == Progress::Phase::kReading)
                                              read_seconds = seconds();
                                            return absl::OkStatus();
                                          });
  if (!trained.ok()) {
    std::cerr << trained.status() << "\n";
    return 1;
  }
  std::printf("read in %.2f s, all in %.2f s, %lld words\n", read_seconds, seconds(),
              static_cast<long long>(trained->words));
  const absl::Status status = WriteTokenizer(*trained, argv[2]);
  if (!status.ok()) std::cerr << status << "\n";
  return status.ok() ? 0 : 1;
}
