#include "engine/data/tokenizer.h"

#include "absl/strings/str_cat.h"
#include "engine/data/byte_tokenizer.h"

namespace millrace {
namespace {

struct TokenizerKind {
  absl::string_view name;
  std::unique_ptr<Tokenizer> (*make)();
};

constexpr TokenizerKind kKinds[] = {
    {"byte", [] { return std::unique_ptr<Tokenizer>(new ByteTokenizer); }},
};

}  // namespace

std::vector<int32_t> EncodePrompt(const Tokenizer& tokenizer, absl::string_view text) {
  std::vector<int32_t> tokens;
  if (tokenizer.begin_of_document()) tokens.push_back(*tokenizer.begin_of_document());
  tokenizer.Encode(text, &tokens);
  if (tokens.empty()) tokens.push_back(tokenizer.end_of_document());
  return tokens;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> MakeTokenizer(absl::string_view name) {
  if (name.empty()) name = kKinds[0].name;
  std::string known;
  for (const TokenizerKind& kind : kKinds) {
    if (kind.name == name) return kind.make();
    absl::StrAppend(&known, known.empty() ? "" : ", ", kind.name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("tokenizer: \"", name, "\" is not known; choose one of: ", known));
}

}  // namespace millrace
