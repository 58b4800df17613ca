#include "engine/data/pre_tokenizer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/base/status_macros.h"
#include "engine/data/json_fields.h"
#include "engine/data/split_behavior.h"
#include "engine/data/text_pattern.h"
#include "engine/data/unicode_text.h"

namespace millrace {
namespace {

constexpr int kMostDepth = 8;
constexpr size_t kMostSteps = 32;

// What ByteLevel cuts by when `use_regex` is set: GPT-2's pattern.
constexpr absl::string_view kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

absl::string_view Piece(const TextPieces& pieces, TextRange range) {
  return pieces.text.substr(range.begin, range.end - range.begin);
}

// Cuts each piece at the matches of a pattern.
class SplitAtPattern : public PreTokenizerStep {
 public:
  SplitAtPattern(TextPattern pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  void Apply(TextPieces* pieces, RegexScratch* scratch) const override {
    std::vector<TextRange> cut;
    std::vector<Stretch> stretches;
    for (TextRange range : pieces->pieces) {
      const absl::string_view text = Piece(*pieces, range);
      stretches.clear();
      const auto add = [&](size_t begin, size_t end, bool match) {
        if (begin < end) {
          stretches.push_back({{range.begin + begin, range.begin + end}, match != invert_});
        }
      };
      size_t at = 0, begin = 0, end = 0;
      while (at < text.size() && pattern_.Find(text, at, scratch, &begin, &end)) {
        add(at, begin, false);
        add(begin, end, true);
        at = end;
      }
      add(at, text.size(), false);
      CutStretches(behavior_, &stretches, &cut);
    }
    pieces->pieces = std::move(cut);
  }

 private:
  TextPattern pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

// Cuts each piece at characters of a kind, each a match of its own.
class SplitAtKind : public PreTokenizerStep {
 public:
  SplitAtKind(CharacterKind kind, SplitBehavior behavior) : kind_(kind), behavior_(behavior) {}

  void Apply(TextPieces* pieces, RegexScratch*) const override {
    std::vector<TextRange> cut;
    std::vector<Stretch> stretches;
    for (TextRange range : pieces->pieces) {
      stretches.clear();
      for (size_t at = range.begin; at < range.end;) {
        const size_t begin = at;
        const bool match = kind_(NextCharacter(pieces->text, &at));
        if (!match && !stretches.empty() && !stretches.back().match) {
          stretches.back().range.end = at;
        } else {
          stretches.push_back({{begin, at}, match});
        }
      }
      CutStretches(behavior_, &stretches, &cut);
    }
    pieces->pieces = std::move(cut);
  }

 private:
  CharacterKind kind_;
  SplitBehavior behavior_;
};

// Keeps runs of word characters, and runs of what is neither that nor white space.
class WordsAndSymbols : public PreTokenizerStep {
 public:
  void Apply(TextPieces* pieces, RegexScratch*) const override {
    std::vector<TextRange> cut;
    for (TextRange range : pieces->pieces) {
      int previous = 0;
      for (size_t at = range.begin; at < range.end;) {
        const size_t begin = at;
        const char32_t c = NextCharacter(pieces->text, &at);
        const int kind = IsWordCharacter(c) ? 1 : IsWhitespace(c) ? 0 : 2;
        if (kind != 0 && kind == previous) {
          cut.back().end = at;
        } else if (kind != 0) {
          cut.push_back({begin, at});
        }
        previous = kind;
      }
    }
    pieces->pieces = std::move(cut);
  }
};

// Writes each piece anew: `from` becomes `to`, with `prefix` before it where `prefixed(i)` says so
// and it does not begin with it already.
template <typename Prefixed>
void Rewrite(absl::string_view from, const std::string& to, const std::string& prefix,
             Prefixed prefixed, TextPieces* pieces) {
  std::string out;
  out.reserve(pieces->text.size() + pieces->text.size() / 2);
  for (TextRange& range : pieces->pieces) {
    const absl::string_view text = Piece(*pieces, range);
    std::string replaced = from == to ? std::string(text) : absl::StrReplaceAll(text, {{from, to}});
    const size_t begin = out.size();
    if (prefixed(range) && !absl::StartsWith(replaced, prefix)) out += prefix;
    out += replaced;
    range = {begin, out.size()};
  }
  pieces->storage = std::move(out);
  pieces->text = pieces->storage;
}

class PrefixSpace : public PreTokenizerStep {
 public:
  void Apply(TextPieces* pieces, RegexScratch*) const override {
    Rewrite(
        " ", " ", " ", [](TextRange) { return true; }, pieces);
  }
};

// Spaces become `mark`, which also comes first.
class Metaspace : public PreTokenizerStep {
 public:
  enum class Prepend { kAlways, kFirst, kNever };

  Metaspace(std::string mark, Prepend prepend) : mark_(std::move(mark)), prepend_(prepend) {}

  void Apply(TextPieces* pieces, RegexScratch*) const override {
    const bool first = pieces->at_document_begin;
    Rewrite(
        " ", mark_, mark_,
        [&](TextRange range) {
          return prepend_ == Prepend::kAlways ||
                 (prepend_ == Prepend::kFirst && first && range.begin == 0);
        },
        pieces);
  }

 private:
  std::string mark_;
  Prepend prepend_;
};

absl::StatusOr<TextPattern> PatternOf(const char* kind, absl::string_view text) {
  return TextPattern::Parse({{kind, std::string(text)}}, "pre_tokenizer: pattern");
}

using Steps = std::vector<std::unique_ptr<const PreTokenizerStep>>;

absl::Status AddByteLevel(JsonFields& fields, Steps* steps) {
  fields.Ignore("trim_offsets");
  if (fields.Bool("add_prefix_space", true)) steps->push_back(std::make_unique<PrefixSpace>());
  if (fields.Bool("use_regex", true)) {
    MILLRACE_ASSIGN_OR_RETURN(TextPattern pattern, PatternOf("Regex", kByteLevelPattern));
    steps->push_back(
        std::make_unique<SplitAtPattern>(std::move(pattern), SplitBehavior::kIsolated, false));
  }
  return absl::OkStatus();
}

absl::Status AddSplit(JsonFields& fields, Steps* steps) {
  MILLRACE_ASSIGN_OR_RETURN(TextPattern pattern,
                            TextPattern::Parse(fields.Value("pattern"), "pre_tokenizer: pattern"));
  const std::string name = fields.String("behavior");
  const absl::optional<SplitBehavior> behavior = SplitBehaviorNamed(name);
  if (!behavior) {
    return fields.Problem(absl::StrCat("behavior \"", name, "\" is not supported"));
  }
  steps->push_back(std::make_unique<SplitAtPattern>(std::move(pattern), *behavior,
                                                    fields.Bool("invert", false)));
  return absl::OkStatus();
}

absl::Status AddMetaspace(JsonFields& fields, Steps* steps) {
  fields.Ignore("str_rep");
  const std::string mark = fields.String("replacement");
  size_t length = 0;
  if (!mark.empty()) NextCharacter(mark, &length);
  if (mark.empty() || length != mark.size()) {
    return fields.Problem("\"replacement\" must be one character");
  }
  const bool legacy = fields.Bool("add_prefix_space", true);
  const std::string scheme = fields.String("prepend_scheme", legacy ? "always" : "never");
  Metaspace::Prepend prepend = Metaspace::Prepend::kAlways;
  if (scheme == "first") {
    prepend = Metaspace::Prepend::kFirst;
  } else if (scheme == "never") {
    prepend = Metaspace::Prepend::kNever;
  } else if (scheme != "always") {
    return fields.Problem(absl::StrCat("prepend_scheme \"", scheme, "\" is not supported"));
  }
  steps->push_back(std::make_unique<Metaspace>(mark, prepend));
  if (fields.Bool("split", true)) {
    MILLRACE_ASSIGN_OR_RETURN(TextPattern pattern, PatternOf("String", mark));
    steps->push_back(std::make_unique<SplitAtPattern>(std::move(pattern),
                                                      SplitBehavior::kMergedWithNext, false));
  }
  return absl::OkStatus();
}

absl::Status AddDigits(JsonFields& fields, Steps* steps) {
  const bool individual = fields.Bool("individual_digits", false);
  steps->push_back(std::make_unique<SplitAtKind>(
      IsNumeric, individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous));
  return absl::OkStatus();
}

absl::Status AddPunctuation(JsonFields& fields, Steps* steps) {
  const std::string name = fields.String("behavior", "Isolated");
  const absl::optional<SplitBehavior> behavior = SplitBehaviorNamed(name);
  if (!behavior) {
    return fields.Problem(absl::StrCat("behavior \"", name, "\" is not supported"));
  }
  steps->push_back(std::make_unique<SplitAtKind>(IsPunctuation, *behavior));
  return absl::OkStatus();
}

absl::Status AddWhitespace(JsonFields&, Steps* steps) {
  steps->push_back(std::make_unique<WordsAndSymbols>());
  return absl::OkStatus();
}

absl::Status AddWhitespaceSplit(JsonFields&, Steps* steps) {
  steps->push_back(std::make_unique<SplitAtKind>(IsWhitespace, SplitBehavior::kRemoved));
  return absl::OkStatus();
}

struct Kind {
  absl::string_view type;
  absl::Status (*add)(JsonFields& fields, Steps* steps);
};
constexpr Kind kKinds[] = {
    {"ByteLevel", AddByteLevel},
    {"Split", AddSplit},
    {"Metaspace", AddMetaspace},
    {"Digits", AddDigits},
    {"Punctuation", AddPunctuation},
    {"Whitespace", AddWhitespace},
    {"WhitespaceSplit", AddWhitespaceSplit},
};

}  // namespace

absl::Status PreTokenizer::AddSteps(const nlohmann::json& value, int depth) {
  JsonFields fields(value, "pre_tokenizer");
  const std::string type = fields.String("type");
  if (type.empty()) MILLRACE_RETURN_IF_ERROR(fields.Finish());
  if (depth > kMostDepth || steps_.size() > kMostSteps) return fields.Problem("has too many steps");
  if (byte_level_) {
    return fields.Problem(absl::StrCat("\"", type, "\" behind ByteLevel is not supported"));
  }
  if (type == "Sequence") {
    const nlohmann::json& parts = fields.Value("pretokenizers");
    if (!parts.is_array()) return fields.Problem("a Sequence must have \"pretokenizers\"");
    for (const nlohmann::json& part : parts) {
      MILLRACE_RETURN_IF_ERROR(AddSteps(part, depth + 1));
    }
    return fields.Finish();
  }
  const Kind* kind = std::find_if(std::begin(kKinds), std::end(kKinds),
                                  [&](const Kind& known) { return known.type == type; });
  if (kind == std::end(kKinds)) {
    return fields.Problem(absl::StrCat("type \"", type, "\" is not supported"));
  }
  byte_level_ = type == "ByteLevel";
  MILLRACE_RETURN_IF_ERROR(kind->add(fields, &steps_));
  return fields.Finish();
}

absl::StatusOr<PreTokenizer> PreTokenizer::Parse(const nlohmann::json& value) {
  PreTokenizer pre_tokenizer;
  if (!value.is_null()) MILLRACE_RETURN_IF_ERROR(pre_tokenizer.AddSteps(value, 0));
  return pre_tokenizer;
}

void PreTokenizer::Apply(absl::string_view text, bool at_document_begin, TextPieces* pieces,
                         RegexScratch* scratch) const {
  pieces->text = text;
  pieces->at_document_begin = at_document_begin;
  pieces->pieces.clear();
  if (!text.empty()) pieces->pieces.push_back({0, text.size()});
  for (const auto& step : steps_) step->Apply(pieces, scratch);
}

}  // namespace millrace
