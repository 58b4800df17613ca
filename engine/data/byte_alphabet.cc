#include "engine/data/byte_alphabet.h"

#include <array>
#include <cstddef>

#include "engine/data/unicode_text.h"

namespace millrace {
namespace {

constexpr size_t kCharacters = 256 + 68;

// Byte of each character, -1 for none. Printable bytes of Latin-1 stand for themselves, the 68
// others are U+0100 and on, in order.
const std::array<int, kCharacters>& Bytes() {
  static const std::array<int, kCharacters> kBytes = [] {
    std::array<int, kCharacters> bytes;
    bytes.fill(-1);
    size_t other = 256;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
      bytes[printable ? static_cast<size_t>(byte) : other++] = byte;
    }
    return bytes;
  }();
  return kBytes;
}

}  // namespace

bool AppendBytesOfToken(absl::string_view token, std::string* bytes) {
  const size_t before = bytes->size();
  for (size_t at = 0; at < token.size();) {
    const char32_t c = NextCharacter(token, &at);
    if (c >= kCharacters || Bytes()[c] < 0) {
      bytes->resize(before);
      return false;
    }
    bytes->push_back(static_cast<char>(Bytes()[c]));
  }
  return true;
}

}  // namespace millrace
