#include "engine/data/token_decoder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "engine/base/status_macros.h"
#include "engine/data/byte_alphabet.h"
#include "engine/data/json_fields.h"
#include "engine/data/regex.h"
#include "engine/data/text_pattern.h"
#include "engine/data/unicode_text.h"

namespace millrace {
namespace {

constexpr int kMostDepth = 8;
constexpr size_t kMostSteps = 32;
// A token may become so many times as long by a Replace, and no longer in all.
constexpr size_t kMostReplacementBytes = 64;
constexpr int kMostReplacements = 4;

using Tokens = std::vector<std::string>;
using Steps = std::vector<std::unique_ptr<const DecoderStep>>;

class FuseTokens : public DecoderStep {
 public:
  void Apply(Tokens* tokens) const override { *tokens = {absl::StrJoin(*tokens, "")}; }
};

// Tokens of the byte alphabet to their bytes; others (added tokens) as they are.
class BytesOfTokens : public DecoderStep {
 public:
  void Apply(Tokens* tokens) const override {
    std::string text;
    for (const std::string& token : *tokens) {
      if (!AppendBytesOfToken(token, &text)) text += token;
    }
    *tokens = {std::move(text)};
  }
};

// Runs of tokens <0x41> to their text, or U+FFFD for each byte where they are no UTF-8.
class FallbackBytes : public DecoderStep {
 public:
  void Apply(Tokens* tokens) const override {
    Tokens out;
    std::string bytes, storage;
    const auto flush = [&] {
      if (bytes.empty()) return;
      const bool valid = WellFormed(bytes, &storage).data() == bytes.data();
      if (valid) out.push_back(bytes);
      for (size_t i = 0; !valid && i < bytes.size(); ++i) out.push_back("\xef\xbf\xbd");
      bytes.clear();
    };
    for (std::string& token : *tokens) {
      if (token.size() == 6 && absl::StartsWith(token, "<0x") && token[5] == '>' &&
          absl::ascii_isxdigit(token[3]) && absl::ascii_isxdigit(token[4])) {
        bytes += absl::HexStringToBytes(absl::string_view(token).substr(3, 2));
      } else {
        flush();
        out.push_back(std::move(token));
      }
    }
    flush();
    *tokens = std::move(out);
  }
};

class ReplaceInTokens : public DecoderStep {
 public:
  ReplaceInTokens(TextPattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void Apply(Tokens* tokens) const override {
    RegexScratch scratch;
    for (std::string& token : *tokens) pattern_.ReplaceAll(content_, &scratch, &token);
  }

 private:
  TextPattern pattern_;
  std::string content_;
};

// Takes up to so many of a character from both ends of each token.
class StripTokens : public DecoderStep {
 public:
  StripTokens(std::string content, int64_t start, int64_t stop)
      : content_(std::move(content)), start_(start), stop_(stop) {}
  void Apply(Tokens* tokens) const override {
    for (std::string& token : *tokens) {
      absl::string_view rest = token;
      for (int64_t i = 0; i < start_ && absl::StartsWith(rest, content_); ++i) {
        rest.remove_prefix(content_.size());
      }
      for (int64_t i = 0; i < stop_ && absl::EndsWith(rest, content_); ++i) {
        rest.remove_suffix(content_.size());
      }
      token = std::string(rest);
    }
  }

 private:
  std::string content_;
  int64_t start_, stop_;
};

// The mark to a space, but in the first token to nothing where one was put before the text.
class SpacesOfMarks : public DecoderStep {
 public:
  SpacesOfMarks(std::string mark, bool prepended) : mark_(std::move(mark)), prepended_(prepended) {}
  void Apply(Tokens* tokens) const override {
    for (size_t i = 0; i < tokens->size(); ++i) {
      absl::StrReplaceAll({{mark_, i == 0 && prepended_ ? "" : " "}}, &(*tokens)[i]);
    }
  }

 private:
  std::string mark_;
  bool prepended_;
};

absl::StatusOr<std::string> OneCharacter(JsonFields& fields, const std::string& name) {
  std::string text = fields.String(name);
  size_t length = 0;
  if (!text.empty()) NextCharacter(text, &length);
  if (text.empty() || length != text.size()) {
    return fields.Problem(absl::StrCat("\"", name, "\" must be one character"));
  }
  return text;
}

absl::Status AddByteLevel(JsonFields& fields, Steps* steps) {
  for (const char* name : {"add_prefix_space", "trim_offsets", "use_regex"}) fields.Ignore(name);
  steps->push_back(std::make_unique<BytesOfTokens>());
  return absl::OkStatus();
}

absl::Status AddByteFallback(JsonFields&, Steps* steps) {
  steps->push_back(std::make_unique<FallbackBytes>());
  return absl::OkStatus();
}

absl::Status AddFuse(JsonFields&, Steps* steps) {
  steps->push_back(std::make_unique<FuseTokens>());
  return absl::OkStatus();
}

absl::Status AddReplace(JsonFields& fields, Steps* steps) {
  MILLRACE_ASSIGN_OR_RETURN(TextPattern pattern,
                            TextPattern::Parse(fields.Value("pattern"), "decoder: pattern"));
  std::string content = fields.String("content");
  const auto replacements = std::count_if(steps->begin(), steps->end(), [](const auto& step) {
    return dynamic_cast<const ReplaceInTokens*>(step.get()) != nullptr;
  });
  if (content.size() > kMostReplacementBytes || replacements >= kMostReplacements) {
    return fields.Problem(absl::StrCat("more than ", kMostReplacements,
                                       " Replace, or one by more than ", kMostReplacementBytes,
                                       " bytes, is not supported"));
  }
  steps->push_back(std::make_unique<ReplaceInTokens>(std::move(pattern), std::move(content)));
  return absl::OkStatus();
}

absl::Status AddStrip(JsonFields& fields, Steps* steps) {
  MILLRACE_ASSIGN_OR_RETURN(std::string content, OneCharacter(fields, "content"));
  const int64_t start = fields.Integer("start", 0, 1 << 20);
  const int64_t stop = fields.Integer("stop", 0, 1 << 20);
  steps->push_back(std::make_unique<StripTokens>(std::move(content), start, stop));
  return absl::OkStatus();
}

absl::Status AddMetaspace(JsonFields& fields, Steps* steps) {
  for (const char* name : {"str_rep", "split"}) fields.Ignore(name);
  MILLRACE_ASSIGN_OR_RETURN(std::string mark, OneCharacter(fields, "replacement"));
  const bool legacy = fields.Bool("add_prefix_space", true);
  const std::string scheme = fields.String("prepend_scheme", legacy ? "always" : "never");
  steps->push_back(std::make_unique<SpacesOfMarks>(std::move(mark), scheme != "never"));
  return absl::OkStatus();
}

struct Kind {
  absl::string_view type;
  absl::Status (*add)(JsonFields& fields, Steps* steps);
};
constexpr Kind kKinds[] = {
    {"ByteLevel", AddByteLevel}, {"ByteFallback", AddByteFallback},
    {"Fuse", AddFuse},           {"Replace", AddReplace},
    {"Strip", AddStrip},         {"Metaspace", AddMetaspace},
};

}  // namespace

absl::Status TokenDecoder::AddSteps(const nlohmann::json& value, int depth) {
  JsonFields fields(value, "decoder");
  const std::string type = fields.String("type");
  if (type.empty()) MILLRACE_RETURN_IF_ERROR(fields.Finish());
  if (depth > kMostDepth || steps_.size() > kMostSteps) return fields.Problem("has too many steps");
  if (type == "Sequence") {
    const nlohmann::json& parts = fields.Value("decoders");
    if (!parts.is_array()) return fields.Problem("a Sequence must have \"decoders\"");
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
  MILLRACE_RETURN_IF_ERROR(kind->add(fields, &steps_));
  return fields.Finish();
}

absl::StatusOr<TokenDecoder> TokenDecoder::Parse(const nlohmann::json& value) {
  TokenDecoder decoder;
  decoder.none_ = value.is_null();
  if (!decoder.none_) MILLRACE_RETURN_IF_ERROR(decoder.AddSteps(value, 0));
  return decoder;
}

std::string TokenDecoder::Decode(std::vector<std::string> tokens) const {
  for (const auto& step : steps_) step->Apply(&tokens);
  return absl::StrJoin(tokens, none_ ? " " : "");
}

}  // namespace millrace
