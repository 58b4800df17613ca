#include "engine/data/regex.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace millrace {
namespace {

constexpr size_t kMostPatternBytes = 16384;
constexpr uint32_t kMostSteps = 1'000'000;
constexpr size_t kMostStackBytes = size_t{8} << 20;
constexpr uint32_t kMostHeapKilobytes = 64 << 10;

absl::Status NotSupported(absl::string_view what, absl::string_view pattern) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, " is not supported in the regular expression ", pattern.substr(0, 500)));
}

// Members of a class.
constexpr absl::string_view kSpace = "\\x09-\\x0d\\x{85}\\p{Z}";
constexpr absl::string_view kWord = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";

class Translator {
 public:
  explicit Translator(absl::string_view pattern) : pattern_(pattern) {}

  absl::StatusOr<std::string> Run() {
    while (at_ < pattern_.size() && status_.ok()) Step();
    if (!status_.ok()) return status_;
    return std::move(out_);
  }

 private:
  absl::string_view rest() const { return pattern_.substr(at_); }
  void Refuse(absl::string_view what) {
    if (status_.ok()) status_ = NotSupported(what, pattern_);
  }
  void Copy(size_t bytes) {
    absl::StrAppend(&out_, rest().substr(0, bytes));
    at_ += bytes;
  }

  void Step() {
    const char c = pattern_[at_];
    if (c == '\\') {
      Escape();
    } else if (in_class_) {
      InClass(c);
    } else if (c == '[') {
      in_class_ = true;
      Copy(absl::StartsWith(rest(), "[^") ? 2 : 1);
      if (absl::StartsWith(rest(), "]")) Refuse("a class that begins with ]");
    } else if (c == '(') {
      Group();
    } else if (absl::StartsWith(rest(), "{,")) {
      Refuse("{,");
    } else if (absl::StartsWith(rest(), "}+")) {
      Refuse("}+");
    } else {
      Copy(1);
    }
  }

  void InClass(char c) {
    if (c == '[') return Refuse("[ inside a class");
    if (absl::StartsWith(rest(), "&&")) return Refuse("&&");
    if (c == ']') in_class_ = false;
    Copy(1);
  }

  void Group() {
    if (!absl::StartsWith(rest(), "(?")) {
      if (absl::StartsWith(rest(), "(*")) return Refuse("(*");
      return Copy(1);
    }
    for (absl::string_view kind : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?-i:"}) {
      if (absl::StartsWith(rest(), kind)) return Copy(kind.size());
    }
    // Elsewhere the two disagree on which alternatives it reaches.
    if (at_ == 0 && absl::StartsWith(rest(), "(?i)")) return Copy(4);
    Refuse(rest().substr(0, 4));
  }

  void Class(absl::string_view members, bool negated) {
    at_ += 2;
    if (!in_class_) {
      absl::StrAppend(&out_, negated ? "[^" : "[", members, "]");
    } else if (negated) {
      Refuse("a negated class inside a class");
    } else {
      absl::StrAppend(&out_, members);
    }
  }

  void Escape() {
    const char c = rest().size() > 1 ? rest()[1] : '\0';
    switch (c) {
      case 's':
      case 'S':
        return Class(kSpace, c == 'S');
      case 'w':
      case 'W':
        return Class(kWord, c == 'W');
      case 'd':
      case 'D':
        return Class("\\p{Nd}", c == 'D');
      case 'r':
      case 'n':
      case 't':
      case 'f':
        return Copy(2);
      case 'p':
      case 'P':
        return Property();
      case 'x':
      case 'u':
        return Code();
      default:
        if (absl::ascii_ispunct(c)) return Copy(2);
        Refuse(rest().substr(0, 2));
    }
  }

  void Property() {
    const size_t close = rest().find('}');
    if (!absl::StartsWith(rest().substr(2), "{") || close == absl::string_view::npos) {
      return Refuse(rest().substr(0, 3));
    }
    absl::string_view name = rest().substr(3, close - 3);
    const bool inverse = absl::ConsumePrefix(&name, "^");
    for (char letter : name) {
      if (!absl::ascii_isalpha(letter) && letter != '_') return Refuse(rest().substr(0, close + 1));
    }
    // Categories have one letter or two; longer names are scripts, which PCRE2 would extend.
    absl::StrAppend(&out_, rest().substr(0, 2), inverse ? "{^" : "{", name.size() > 2 ? "sc:" : "",
                    name, "}");
    at_ += close + 1;
  }

  // \x{H...}, \uHHHH, and \xHH below 0x80: above, it is a byte of UTF-8 to Oniguruma.
  void Code() {
    absl::string_view digits = rest().substr(2);
    size_t length = rest()[1] == 'u' ? 4 : 2, all = 2 + length;
    if (rest()[1] == 'x' && absl::ConsumePrefix(&digits, "{")) {
      length = digits.find('}');
      if (length == absl::string_view::npos) return Refuse("\\x{");
      all = 4 + length;
    }
    const bool plain_byte = all == 4 && length == 2;
    if (digits.size() < length || length == 0 || length > 6 ||
        (plain_byte && (digits[0] < '0' || digits[0] > '7'))) {
      return Refuse(rest().substr(0, 4));
    }
    digits = digits.substr(0, length);
    for (char digit : digits) {
      if (!absl::ascii_isxdigit(digit)) return Refuse(rest().substr(0, 4));
    }
    absl::StrAppend(&out_, "\\x{", digits, "}");
    at_ += all;
  }

  absl::string_view pattern_;
  size_t at_ = 0;
  bool in_class_ = false;
  std::string out_;
  absl::Status status_;
};

PCRE2_SPTR Bytes(absl::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

}  // namespace

struct RegexScratch::State {
  pcre2_match_data* match = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(size_t{32} << 10, kMostStackBytes, nullptr);
};

RegexScratch::RegexScratch() : state_(std::make_unique<State>()) {
  pcre2_set_match_limit(state_->context, kMostSteps);
  pcre2_set_heap_limit(state_->context, kMostHeapKilobytes);
  pcre2_jit_stack_assign(state_->context, nullptr, state_->stack);
}

RegexScratch::~RegexScratch() {
  pcre2_jit_stack_free(state_->stack);
  pcre2_match_context_free(state_->context);
  pcre2_match_data_free(state_->match);
}

struct Regex::Code {
  pcre2_code* code = nullptr;
  bool jit = false;
};

Regex::Regex(std::unique_ptr<Code> code) : code_(std::move(code)) {}
Regex::~Regex() { pcre2_code_free(code_->code); }

absl::StatusOr<std::string> TranslatePattern(absl::string_view pattern) {
  if (pattern.size() > kMostPatternBytes) {
    return NotSupported(absl::StrCat("a length above ", kMostPatternBytes, " bytes"), pattern);
  }
  return Translator(pattern).Run();
}

absl::StatusOr<std::unique_ptr<const Regex>> Regex::Compile(absl::string_view pattern) {
  absl::StatusOr<std::string> translated = TranslatePattern(pattern);
  if (!translated.ok()) return translated.status();
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto code = std::make_unique<Code>();
  code->code = pcre2_compile(Bytes(*translated), translated->size(),
                             PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                             &error, &offset, nullptr);
  if (code->code == nullptr) {
    PCRE2_UCHAR message[256] = {};
    pcre2_get_error_message(error, message, sizeof(message));
    return absl::InvalidArgumentError(
        absl::StrCat("the regular expression ", pattern.substr(0, 500),
                     " is not valid: ", reinterpret_cast<const char*>(message)));
  }
  std::unique_ptr<const Regex> regex(new Regex(std::move(code)));
  uint32_t matches_empty = 0;
  pcre2_pattern_info(regex->code_->code, PCRE2_INFO_MATCHEMPTY, &matches_empty);
  if (matches_empty != 0) return NotSupported("matching the empty string", pattern);
  regex->code_->jit = pcre2_jit_compile(regex->code_->code, PCRE2_JIT_COMPLETE) == 0;
  return regex;
}

bool Regex::Find(absl::string_view text, size_t from, RegexScratch* scratch, size_t* begin,
                 size_t* end) const {
  RegexScratch::State& state = *scratch->state_;
  int found = PCRE2_ERROR_JIT_STACKLIMIT;
  if (code_->jit) {
    found = pcre2_jit_match(code_->code, Bytes(text), text.size(), from, PCRE2_NO_UTF_CHECK,
                            state.match, state.context);
  }
  if (found == PCRE2_ERROR_JIT_STACKLIMIT) {
    found = pcre2_match(code_->code, Bytes(text), text.size(), from,
                        PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, state.match, state.context);
  }
  if (found < 0) return false;
  const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(state.match);
  *begin = offsets[0];
  *end = offsets[1];
  // Look-around can make an empty match that the check of the pattern does not foresee.
  return *end > *begin;
}

}  // namespace millrace
