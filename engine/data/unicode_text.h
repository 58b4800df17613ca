// Characters of UTF-8 text and their kinds, as Hugging Face tokenizers knows them.
#ifndef MILLRACE_ENGINE_DATA_UNICODE_TEXT_H_
#define MILLRACE_ENGINE_DATA_UNICODE_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace millrace {

// The character at byte `*at` (< text.size()); moves `*at` behind it. `text` is well-formed.
char32_t NextCharacter(absl::string_view text, size_t* at);
// The one that ends at byte `*at` (> 0); moves `*at` to its begin.
char32_t PreviousCharacter(absl::string_view text, size_t* at);
void AppendCharacter(char32_t character, std::string* text);

// `text` itself when it is well-formed UTF-8; else a copy in `*storage` with U+FFFD for each
// maximal part of an ill-formed sequence (Unicode standard, section 3.9), as Rust's and Python's
// decoders do.
absl::string_view WellFormed(absl::string_view text, std::string* storage);

using CharacterKind = bool (*)(char32_t);
bool IsWhitespace(char32_t c);     // property White_Space
bool IsLetter(char32_t c);         // categories L*
bool IsNumeric(char32_t c);        // categories N*
bool IsPunctuation(char32_t c);    // categories P*, and ASCII's symbols
bool IsMark(char32_t c);           // categories M*
bool IsWordCharacter(char32_t c);  // Rust's \w: Alphabetic, M*, Nd, Pc, Join_Control
// In lower case, without a look at its neighbours.
void AppendLowercase(char32_t c, std::string* text);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_DATA_UNICODE_TEXT_H_
