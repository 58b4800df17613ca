#include "engine/data/utf8.h"

#include <cstdint>
#include <cstring>

namespace millrace {
namespace {

// Length of the well-formed sequence at the begin of `text` (not empty); 0 when there is none.
size_t SequenceLength(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return lead == 0 ? 0 : 1;
  size_t length = 0;
  unsigned char least = 0x80, most = 0xbf;  // of the second byte
  if (lead >= 0xc2 && lead <= 0xdf) {
    length = 2;
  } else if (lead >= 0xe0 && lead <= 0xef) {
    length = 3;
    if (lead == 0xe0) least = 0xa0;
    if (lead == 0xed) most = 0x9f;
  } else if (lead >= 0xf0 && lead <= 0xf4) {
    length = 4;
    if (lead == 0xf0) least = 0x90;
    if (lead == 0xf4) most = 0x8f;
  } else {
    return 0;
  }
  if (text.size() < length || byte(1) < least || byte(1) > most) return 0;
  for (size_t i = 2; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  return length;
}

// Whether eight bytes are all ASCII and none is NUL.
bool IsPlain(const char* bytes) {
  uint64_t word;
  std::memcpy(&word, bytes, sizeof(word));
  constexpr uint64_t kHigh = 0x8080808080808080u, kOnes = 0x0101010101010101u;
  return (word & kHigh) == 0 && ((word - kOnes) & kHigh) == 0;
}

}  // namespace

size_t FirstNonTextByte(absl::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    if (i + 8 <= text.size() && IsPlain(text.data() + i)) {
      i += 8;
      continue;
    }
    const size_t length = SequenceLength(text.substr(i));
    if (length == 0) return i;
    i += length;
  }
  return text.size();
}

size_t CharacterBoundary(absl::string_view text, size_t end) {
  size_t boundary = end;
  while (boundary > 0 && boundary < text.size() && end - boundary < 3 &&
         (static_cast<unsigned char>(text[boundary]) & 0xc0) == 0x80) {
    --boundary;
  }
  return boundary;
}

}  // namespace millrace
