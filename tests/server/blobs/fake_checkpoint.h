// Checkpoints of a job as far as their manifest goes, which is all that serving them looks at.
#ifndef MILLRACE_TESTS_SERVER_BLOBS_FAKE_CHECKPOINT_H_
#define MILLRACE_TESTS_SERVER_BLOBS_FAKE_CHECKPOINT_H_

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/base/file.h"

namespace millrace {

// Writes `checkpoints`/{step} in the format of engine/train/README.md, with these files.
inline void WriteFakeCheckpoint(const std::string& checkpoints, int64_t step,
                                std::optional<double> evaluation_loss,
                                const std::map<std::string, std::string>& files) {
  const std::string folder = absl::StrCat(checkpoints, "/", step);
  std::filesystem::create_directories(folder);
  nlohmann::json manifest = {{"format", 1}, {"step", step}, {"evaluation_loss", nullptr}};
  if (evaluation_loss.has_value()) manifest["evaluation_loss"] = *evaluation_loss;
  manifest["files"] = nlohmann::json::array();
  for (const auto& [name, content] : files) {
    std::ofstream(folder + "/" + name, std::ios::binary) << content;
    Sha256 hash;
    hash.Update(content);
    manifest["files"].push_back(
        {{"name", name}, {"size_bytes", content.size()}, {"sha256", hash.Finish()}});
  }
  std::ofstream(folder + "/manifest.json") << manifest.dump();
}

}  // namespace millrace

#endif  // MILLRACE_TESTS_SERVER_BLOBS_FAKE_CHECKPOINT_H_
