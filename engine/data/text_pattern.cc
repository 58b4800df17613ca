#include "engine/data/text_pattern.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/data/json_fields.h"

namespace millrace {

absl::StatusOr<TextPattern> TextPattern::Parse(const nlohmann::json& value,
                                               absl::string_view where) {
  TextPattern pattern;
  JsonFields fields(value, where);
  const std::string regex = fields.String("Regex", "");
  pattern.literal_ = fields.String("String", "");
  MILLRACE_RETURN_IF_ERROR(fields.Finish());
  if (regex.empty() == pattern.literal_.empty()) {
    return fields.Problem("must have a \"String\" or a \"Regex\" that is not empty");
  }
  if (!regex.empty()) {
    absl::StatusOr<std::unique_ptr<const Regex>> compiled = Regex::Compile(regex);
    if (!compiled.ok()) return fields.Problem(compiled.status().message());
    pattern.regex_ = *std::move(compiled);
  }
  return pattern;
}

bool TextPattern::Find(absl::string_view text, size_t from, RegexScratch* scratch, size_t* begin,
                       size_t* end) const {
  if (regex_) return regex_->Find(text, from, scratch, begin, end);
  *begin = text.find(literal_, from);
  *end = *begin + literal_.size();
  return *begin != absl::string_view::npos;
}

void TextPattern::ReplaceAll(absl::string_view content, RegexScratch* scratch,
                             std::string* text) const {
  std::string out;
  size_t at = 0, begin = 0, end = 0;
  while (at < text->size() && Find(*text, at, scratch, &begin, &end)) {
    absl::StrAppend(&out, absl::string_view(*text).substr(at, begin - at), content);
    at = end;
  }
  if (at == 0) return;
  out.append(*text, at);
  *text = std::move(out);
}

}  // namespace millrace
