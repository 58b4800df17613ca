// The metadata of one GGUF file under its architecture's name, with a record of what has been asked
// for: what is left may change what the model computes.
#ifndef MILLRACE_ENGINE_MODEL_GGUF_KEYS_H_
#define MILLRACE_ENGINE_MODEL_GGUF_KEYS_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/model/gguf_file.h"

namespace millrace {

class GgufKeys {
 public:
  // `file` must stay.
  GgufKeys(const GgufFile& file, absl::string_view architecture)
      : file_(file), architecture_(architecture) {}

  const GgufFile& file() const { return file_; }
  const std::string& architecture() const { return architecture_; }
  // "llama.block_count"
  std::string FullKey(absl::string_view key) const;
  // INVALID_ARGUMENT: the file, `name`, and what is wrong with it.
  absl::Status Error(absl::string_view name, absl::string_view message) const;

  // The value of an architecture's key, which is then known; nullptr where there is none.
  const GgufValue* Find(absl::string_view key);
  // Nothing where there is none. INVALID_ARGUMENT when it is of another type.
  absl::StatusOr<std::optional<int64_t>> Whole(absl::string_view key);
  absl::StatusOr<std::optional<double>> Real(absl::string_view key);
  absl::StatusOr<std::optional<std::string>> Text(absl::string_view key);

  // Values of a tensor that is no parameter but a list of positive factors, `count` of them; empty
  // where there is none.
  absl::StatusOr<std::vector<double>> Factors(absl::string_view tensor, int64_t count) const;

  // INVALID_ARGUMENT names a key that nobody has asked for.
  absl::Status CheckUnknown() const;

 private:
  const GgufFile& file_;
  std::string architecture_;
  std::set<std::string, std::less<>> known_;
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_MODEL_GGUF_KEYS_H_
