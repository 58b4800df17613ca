// What a tokenizer file makes of text before it is cut: Unicode normal forms, replacements.
#ifndef MILLRACE_ENGINE_DATA_NORMALIZER_H_
#define MILLRACE_ENGINE_DATA_NORMALIZER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/data/regex.h"
#include "nlohmann/json.hpp"

namespace millrace {

// Immutable; any thread may call.
class NormalizerStep {
 public:
  virtual ~NormalizerStep() = default;
  // Changes `*text`, which is well-formed UTF-8 before and after.
  virtual void Apply(std::string* text, RegexScratch* scratch) const = 0;
  // Most bytes that a byte can become.
  virtual double growth() const = 0;
};

class Normalizer {
 public:
  // `value`: the file's "normalizer", null for none. Known: NFC, NFD, NFKC, NFKD, Lowercase,
  // Prepend, Replace, Strip, StripAccents, Sequence. Steps that could make text more than 256 times
  // as long are refused.
  static absl::StatusOr<Normalizer> Parse(const nlohmann::json& value);

  bool empty() const { return steps_.empty(); }
  // `text` normalized; lies in `*storage` where there are steps.
  absl::string_view Apply(absl::string_view text, std::string* storage,
                          RegexScratch* scratch) const;

 private:
  std::vector<std::unique_ptr<const NormalizerStep>> steps_;
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_DATA_NORMALIZER_H_
