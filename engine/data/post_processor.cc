#include "engine/data/post_processor.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/base/status_macros.h"
#include "engine/data/json_fields.h"

namespace millrace {
namespace {

using nlohmann::json;

constexpr int kMostDepth = 8;
// Those that only put special tokens around the text, or only change offsets.
constexpr absl::string_view kPostProcessors[] = {"ByteLevel", "TemplateProcessing",
                                                 "BertProcessing", "RobertaProcessing"};

// The tokens that a template puts before the text, one after the other.
absl::Status ReadTemplate(const JsonFields& fields, const json& pieces, std::string* begin) {
  if (!pieces.is_array()) return fields.Problem("a TemplateProcessing must have \"single\"");
  for (const json& piece : pieces) {
    const auto special = piece.find("SpecialToken");
    if (!piece.is_object() || special == piece.end()) break;
    if (!begin->empty()) {
      return fields.Problem("more than one token before a text is not supported");
    }
    const auto id = special->is_object() ? special->find("id") : special->end();
    if (id == special->end() || !id->is_string()) {
      return fields.Problem("a SpecialToken must have an \"id\", a token");
    }
    *begin = id->get<std::string>();
  }
  return absl::OkStatus();
}

// Checks that all it does is put tokens around a text; `begin` becomes the one before it, if any.
absl::Status ReadPostProcessor(const json& value, int depth, std::string* begin) {
  if (value.is_null()) return absl::OkStatus();
  JsonFields fields(value, "post_processor");
  const std::string type = fields.String("type");
  if (type.empty()) return fields.Finish();
  if (depth > kMostDepth) return fields.Problem("sequences lie too deep in each other");
  if (type == "Sequence") {
    const json& parts = fields.Value("processors");
    if (!parts.is_array()) return fields.Problem("a Sequence must have \"processors\"");
    for (const json& part : parts) {
      MILLRACE_RETURN_IF_ERROR(ReadPostProcessor(part, depth + 1, begin));
    }
    return fields.Finish();
  }
  if (std::find(std::begin(kPostProcessors), std::end(kPostProcessors), type) ==
      std::end(kPostProcessors)) {
    return fields.Problem(absl::StrCat("type \"", type, "\" is not supported"));
  }
  if (type == "TemplateProcessing") return ReadTemplate(fields, fields.Value("single"), begin);
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    const json& first = fields.Value("cls");  // [token, id]
    if (!first.is_array() || first.empty() || !first[0].is_string()) {
      return fields.Problem(absl::StrCat("a ", type, " must have \"cls\", a token and its id"));
    }
    *begin = first[0].get<std::string>();
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> BeginOfPostProcessor(const json& value) {
  std::string begin;
  MILLRACE_RETURN_IF_ERROR(ReadPostProcessor(value, 0, &begin));
  return begin;
}

}  // namespace millrace
