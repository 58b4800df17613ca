// The regular expressions of tokenizer files, which are Oniguruma's, by way of PCRE2.
//
// A pattern is translated so that it matches what Oniguruma would (\s, \w and \d are Unicode's);
// what the two read differently (\h, \b, nested classes, `&&`, scripts by extension...) is refused.
#ifndef MILLRACE_ENGINE_DATA_REGEX_H_
#define MILLRACE_ENGINE_DATA_REGEX_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace millrace {

// What one thread needs to match any pattern.
class RegexScratch {
 public:
  RegexScratch();
  ~RegexScratch();
  RegexScratch(const RegexScratch&) = delete;
  RegexScratch& operator=(const RegexScratch&) = delete;

 private:
  friend class Regex;
  struct State;
  std::unique_ptr<State> state_;
};

// Immutable; any thread may match, each with a scratch of its own.
class Regex {
 public:
  // INVALID_ARGUMENT names the pattern and what is wrong or not supported in it. A pattern that
  // matches the empty string is refused.
  static absl::StatusOr<std::unique_ptr<const Regex>> Compile(absl::string_view pattern);
  ~Regex();
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;

  // The first match in `text` at or after `from`; what precedes `from` is seen by look-behind. A
  // search that takes too many steps (a hostile pattern) counts as none.
  bool Find(absl::string_view text, size_t from, RegexScratch* scratch, size_t* begin,
            size_t* end) const;

 private:
  struct Code;
  explicit Regex(std::unique_ptr<Code> code);
  std::unique_ptr<Code> code_;
};

// The same pattern for PCRE2 (for tests).
absl::StatusOr<std::string> TranslatePattern(absl::string_view pattern);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_DATA_REGEX_H_
