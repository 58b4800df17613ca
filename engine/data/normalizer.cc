#include "engine/data/normalizer.h"

#include <unicode/normalizer2.h>
#include <unicode/stringpiece.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/data/json_fields.h"
#include "engine/data/text_pattern.h"
#include "engine/data/unicode_text.h"

namespace millrace {
namespace {

constexpr int kMostDepth = 8;
constexpr double kMostGrowth = 1024;

class UnicodeForm : public NormalizerStep {
 public:
  UnicodeForm(const icu::Normalizer2* form, double growth) : form_(form), growth_(growth) {}
  void Apply(std::string* text, RegexScratch*) const override {
    UErrorCode error = U_ZERO_ERROR;
    if (form_->isNormalizedUTF8(icu::StringPiece(text->data(), static_cast<int>(text->size())),
                                error)) {
      return;
    }
    std::string out;
    icu::StringByteSink<std::string> sink(&out);
    error = U_ZERO_ERROR;
    form_->normalizeUTF8(0, icu::StringPiece(text->data(), static_cast<int>(text->size())), sink,
                         nullptr, error);
    if (U_SUCCESS(error)) *text = std::move(out);
  }
  double growth() const override { return growth_; }

 private:
  const icu::Normalizer2* form_;
  double growth_;
};

class Lowercase : public NormalizerStep {
 public:
  void Apply(std::string* text, RegexScratch*) const override {
    std::string out;
    for (size_t at = 0; at < text->size();) AppendLowercase(NextCharacter(*text, &at), &out);
    *text = std::move(out);
  }
  double growth() const override { return 1.5; }
};

class StripAccents : public NormalizerStep {
 public:
  void Apply(std::string* text, RegexScratch*) const override {
    std::string out;
    for (size_t at = 0; at < text->size();) {
      const char32_t c = NextCharacter(*text, &at);
      if (!IsMark(c)) AppendCharacter(c, &out);
    }
    *text = std::move(out);
  }
  double growth() const override { return 1; }
};

class Prepend : public NormalizerStep {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  void Apply(std::string* text, RegexScratch*) const override {
    if (!text->empty()) text->insert(0, prefix_);
  }
  double growth() const override { return 1.0 + static_cast<double>(prefix_.size()); }

 private:
  std::string prefix_;
};

class Replace : public NormalizerStep {
 public:
  Replace(TextPattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void Apply(std::string* text, RegexScratch* scratch) const override {
    pattern_.ReplaceAll(content_, scratch, text);
  }
  double growth() const override {
    return std::max(
        1.0, static_cast<double>(content_.size()) / static_cast<double>(pattern_.least_bytes()));
  }

 private:
  TextPattern pattern_;
  std::string content_;
};

class Strip : public NormalizerStep {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  void Apply(std::string* text, RegexScratch*) const override {
    size_t begin = 0, end = text->size();
    for (size_t at = 0; left_ && at < end && IsWhitespace(NextCharacter(*text, &at));) begin = at;
    for (size_t at = end; right_ && at > begin && IsWhitespace(PreviousCharacter(*text, &at));) {
      end = at;
    }
    *text = text->substr(begin, end - begin);
  }
  double growth() const override { return 1; }

 private:
  bool left_, right_;
};

using Steps = std::vector<std::unique_ptr<const NormalizerStep>>;

struct Form {
  absl::string_view type;
  const icu::Normalizer2* (*get)(UErrorCode& error);
  double growth;  // in UTF-8: Unicode technical report 36, section 3.3
};
constexpr Form kForms[] = {
    {"NFC", icu::Normalizer2::getNFCInstance, 3},
    {"NFD", icu::Normalizer2::getNFDInstance, 3},
    {"NFKC", icu::Normalizer2::getNFKCInstance, 11},
    {"NFKD", icu::Normalizer2::getNFKDInstance, 11},
};

absl::Status AddSteps(const nlohmann::json& value, int depth, Steps* steps) {
  JsonFields fields(value, "normalizer");
  const std::string type = fields.String("type");
  if (depth > kMostDepth) return fields.Problem("sequences lie too deep in each other");
  if (type == "Sequence") {
    const nlohmann::json& parts = fields.Value("normalizers");
    if (!parts.is_array()) return fields.Problem("a Sequence must have \"normalizers\"");
    for (const nlohmann::json& part : parts) {
      MILLRACE_RETURN_IF_ERROR(AddSteps(part, depth + 1, steps));
    }
  } else if (type == "Lowercase") {
    steps->push_back(std::make_unique<Lowercase>());
  } else if (type == "StripAccents") {
    steps->push_back(std::make_unique<StripAccents>());
  } else if (type == "Prepend") {
    steps->push_back(std::make_unique<Prepend>(fields.String("prepend")));
  } else if (type == "Strip") {
    const bool left = fields.Bool("strip_left", true), right = fields.Bool("strip_right", true);
    steps->push_back(std::make_unique<Strip>(left, right));
  } else if (type == "Replace") {
    MILLRACE_ASSIGN_OR_RETURN(TextPattern pattern,
                              TextPattern::Parse(fields.Value("pattern"), "normalizer: pattern"));
    steps->push_back(std::make_unique<Replace>(std::move(pattern), fields.String("content")));
  } else {
    const Form* form = std::find_if(std::begin(kForms), std::end(kForms),
                                    [&](const Form& known) { return known.type == type; });
    if (form == std::end(kForms)) {
      MILLRACE_RETURN_IF_ERROR(type.empty() ? fields.Finish() : absl::OkStatus());
      return fields.Problem(absl::StrCat("type \"", type, "\" is not supported"));
    }
    UErrorCode error = U_ZERO_ERROR;
    const icu::Normalizer2* instance = form->get(error);
    if (U_FAILURE(error)) {
      return absl::InternalError(absl::StrCat("ICU has no data for ", type, ": ",
                                              u_errorName(error), "; install it in full"));
    }
    steps->push_back(std::make_unique<UnicodeForm>(instance, form->growth));
  }
  return fields.Finish();
}

}  // namespace

absl::StatusOr<Normalizer> Normalizer::Parse(const nlohmann::json& value) {
  Normalizer normalizer;
  if (value.is_null()) return normalizer;
  MILLRACE_RETURN_IF_ERROR(AddSteps(value, 0, &normalizer.steps_));
  double growth = 1;
  for (const auto& step : normalizer.steps_) {
    growth *= step->growth();
    if (growth > kMostGrowth) {
      return absl::InvalidArgumentError(
          absl::StrCat("normalizer: could make text more than ", kMostGrowth, " times as long"));
    }
  }
  return normalizer;
}

absl::string_view Normalizer::Apply(absl::string_view text, std::string* storage,
                                    RegexScratch* scratch) const {
  if (steps_.empty()) return text;
  storage->assign(text.data(), text.size());
  for (const auto& step : steps_) step->Apply(storage, scratch);
  return *storage;
}

}  // namespace millrace
