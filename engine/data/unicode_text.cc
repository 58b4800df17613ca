#include "engine/data/unicode_text.h"

#include <unicode/uchar.h>
#include <unicode/utf8.h>

namespace millrace {

char32_t NextCharacter(absl::string_view text, size_t* at) {
  UChar32 c;
  const char* bytes = text.data();
  U8_NEXT_UNSAFE(bytes, *at, c);
  return static_cast<char32_t>(c);
}

char32_t PreviousCharacter(absl::string_view text, size_t* at) {
  UChar32 c;
  const char* bytes = text.data();
  U8_PREV_UNSAFE(bytes, *at, c);
  return static_cast<char32_t>(c);
}

void AppendCharacter(char32_t character, std::string* text) {
  char bytes[U8_MAX_LENGTH];
  size_t length = 0;
  U8_APPEND_UNSAFE(bytes, length, character);
  text->append(bytes, length);
}

absl::string_view WellFormed(absl::string_view text, std::string* storage) {
  const char* bytes = text.data();
  bool changed = false;
  size_t copied = 0;
  for (size_t i = 0; i < text.size();) {
    if (static_cast<unsigned char>(bytes[i]) < 0x80) {
      ++i;
      continue;
    }
    const size_t begin = i;
    UChar32 c;
    U8_NEXT(bytes, i, text.size(), c);
    if (c >= 0) continue;
    if (!changed) storage->clear();
    changed = true;
    storage->append(bytes + copied, begin - copied);
    storage->append("\xef\xbf\xbd");
    copied = i;
  }
  if (!changed) return text;
  storage->append(bytes + copied, text.size() - copied);
  return *storage;
}

bool IsWhitespace(char32_t c) { return u_isUWhiteSpace(static_cast<UChar32>(c)); }

bool IsLetter(char32_t c) { return (U_GET_GC_MASK(static_cast<UChar32>(c)) & U_GC_L_MASK) != 0; }

bool IsNumeric(char32_t c) { return (U_GET_GC_MASK(static_cast<UChar32>(c)) & U_GC_N_MASK) != 0; }

bool IsPunctuation(char32_t c) {
  if (c < 0x80) {
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
  }
  return (U_GET_GC_MASK(static_cast<UChar32>(c)) & U_GC_P_MASK) != 0;
}

bool IsMark(char32_t c) { return (U_GET_GC_MASK(static_cast<UChar32>(c)) & U_GC_M_MASK) != 0; }

bool IsWordCharacter(char32_t c) {
  const auto code = static_cast<UChar32>(c);
  return (U_GET_GC_MASK(code) & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK)) != 0 ||
         u_isUAlphabetic(code) || u_hasBinaryProperty(code, UCHAR_JOIN_CONTROL);
}

void AppendLowercase(char32_t c, std::string* text) {
  constexpr char32_t kCapitalIWithDot = 0x130;  // alone becomes two characters
  if (c == kCapitalIWithDot) {
    text->append("i\xcc\x87");
  } else {
    AppendCharacter(static_cast<char32_t>(u_tolower(static_cast<UChar32>(c))), text);
  }
}

}  // namespace millrace
