#include "engine/data/added_tokens.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/data/json_fields.h"
#include "engine/data/unicode_text.h"

namespace millrace {
namespace {

constexpr size_t kMostContentBytes = 1024;
constexpr int64_t kMostId = (int64_t{1} << 24) - 1;

bool EndsWithWord(absl::string_view text) {
  size_t at = text.size();
  return at > 0 && IsWordCharacter(PreviousCharacter(text, &at));
}

bool BeginsWithWord(absl::string_view text) {
  size_t at = 0;
  return !text.empty() && IsWordCharacter(NextCharacter(text, &at));
}

}  // namespace

absl::StatusOr<std::vector<AddedToken>> ParseAddedTokens(const nlohmann::json& value) {
  std::vector<AddedToken> tokens;
  if (value.is_null()) return tokens;
  if (!value.is_array()) return absl::InvalidArgumentError("added_tokens: is no array");
  for (const nlohmann::json& entry : value) {
    JsonFields fields(entry, absl::StrCat("added_tokens[", tokens.size(), "]"));
    AddedToken token;
    token.id = static_cast<int32_t>(fields.Integer("id", 0, kMostId));
    token.content = fields.String("content");
    token.single_word = fields.Bool("single_word", false);
    token.lstrip = fields.Bool("lstrip", false);
    token.rstrip = fields.Bool("rstrip", false);
    token.special = fields.Bool("special", false);
    token.normalized = fields.Bool("normalized", !token.special);
    MILLRACE_RETURN_IF_ERROR(fields.Finish());
    if (token.content.empty() || token.content.size() > kMostContentBytes) {
      return fields.Problem(
          absl::StrCat("\"content\" must have 1 to ", kMostContentBytes, " bytes"));
    }
    tokens.push_back(std::move(token));
  }
  return tokens;
}

void AddedTokenFinder::Add(const AddedToken& token, absl::string_view content) {
  if (content.empty()) return;
  begins_[static_cast<unsigned char>(content[0])] = true;
  uint64_t node = 0;
  for (char byte : content) {
    const auto [edge, added] = edges_.try_emplace(node << 8 | static_cast<unsigned char>(byte),
                                                  static_cast<uint32_t>(token_of_node_.size()));
    if (added) token_of_node_.push_back(-1);
    node = edge->second;
  }
  if (token_of_node_[node] >= 0) return;
  token_of_node_[node] = static_cast<int>(tokens_.size());
  tokens_.push_back(token);
}

int AddedTokenFinder::Longest(absl::string_view text, size_t at, size_t* end) const {
  int longest = -1;
  uint64_t node = 0;
  for (size_t i = at; i < text.size(); ++i) {
    const auto edge = edges_.find(node << 8 | static_cast<unsigned char>(text[i]));
    if (edge == edges_.end()) break;
    node = edge->second;
    if (token_of_node_[node] < 0) continue;
    longest = token_of_node_[node];
    *end = i + 1;
  }
  return longest;
}

void AddedTokenFinder::Split(absl::string_view text, std::vector<Part>* parts) const {
  parts->clear();
  size_t done = 0;
  for (size_t at = 0; at < text.size() && !tokens_.empty();) {
    if (!begins_[static_cast<unsigned char>(text[at])]) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + 1;
    const int found = Longest(text, at, &end);
    at = end;
    if (found < 0) continue;
    const AddedToken& token = tokens_[static_cast<size_t>(found)];
    if (token.single_word &&
        (EndsWithWord(text.substr(0, begin)) || BeginsWithWord(text.substr(end)))) {
      continue;
    }
    if (token.lstrip) {
      for (size_t i = begin; i > done && IsWhitespace(PreviousCharacter(text, &i));) begin = i;
      begin = std::max(begin, done);
    }
    if (token.rstrip) {
      for (size_t i = end; i < text.size() && IsWhitespace(NextCharacter(text, &i));) end = i;
    }
    if (done < begin) parts->push_back({done, begin, -1});
    parts->push_back({begin, end, token.id});
    done = end;
  }
  if (done < text.size()) parts->push_back({done, text.size(), -1});
}

}  // namespace millrace
