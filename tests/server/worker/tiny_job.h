// A job that a worker trains in a moment, and a text for it.
#ifndef MILLRACE_TESTS_SERVER_WORKER_TINY_JOB_H_
#define MILLRACE_TESTS_SERVER_WORKER_TINY_JOB_H_

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/base/file.h"

namespace millrace {

// `data` as in data.train; `more` are further lines of the file.
inline std::string TinyJob(const std::string& data, int steps, const std::string& more = "") {
  return absl::StrCat(
      "name: tiny\n"
      "model: {config: {model_type: llama, hidden_size: 32, num_hidden_layers: 2,\n"
      "                 num_attention_heads: 2, intermediate_size: 64,\n"
      "                 max_position_embeddings: 64}}\n"
      "data: {train: '",
      data, "', sequence_length: 32}\ntrain: {steps: ", steps,
      ", tokens_per_step: 64, threads: 1}\nevaluation: {max_sequences: 4}\n", more);
}

inline void WriteTinyText(const std::string& path) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream file(path);
  for (int i = 0; i < 500; ++i) file << "Line " << i << " of a text that repeats itself.\n";
}

// Name to SHA-256 of the files in a folder.
inline std::map<std::string, std::string> HashesIn(const std::string& folder) {
  std::map<std::string, std::string> hashes;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    hashes[entry.path().filename().string()] =
        Sha256OfFile(entry.path().string()).value_or("cannot be read");
  }
  return hashes;
}

}  // namespace millrace

#endif  // MILLRACE_TESTS_SERVER_WORKER_TINY_JOB_H_
