// The patterns of tokenizer files: {"String": "▁"} or {"Regex": "\\s+"}.
#ifndef MILLRACE_ENGINE_DATA_TEXT_PATTERN_H_
#define MILLRACE_ENGINE_DATA_TEXT_PATTERN_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/data/regex.h"
#include "nlohmann/json.hpp"

namespace millrace {

class TextPattern {
 public:
  // `where` is what errors begin with. An empty string is refused.
  static absl::StatusOr<TextPattern> Parse(const nlohmann::json& value, absl::string_view where);

  // The first match in `text` at or after `from`; never empty.
  bool Find(absl::string_view text, size_t from, RegexScratch* scratch, size_t* begin,
            size_t* end) const;
  void ReplaceAll(absl::string_view content, RegexScratch* scratch, std::string* text) const;
  // Fewest bytes that a match can have.
  size_t least_bytes() const { return regex_ ? 1 : literal_.size(); }

 private:
  std::string literal_;
  std::shared_ptr<const Regex> regex_;
};

}  // namespace millrace

#endif  // MILLRACE_ENGINE_DATA_TEXT_PATTERN_H_
