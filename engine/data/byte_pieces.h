// The tokens by which vocabularies of characters write bytes: <0x41>.
#ifndef MILLRACE_ENGINE_DATA_BYTE_PIECES_H_
#define MILLRACE_ENGINE_DATA_BYTE_PIECES_H_

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

namespace millrace {

inline std::string PieceOfByte(int byte) { return absl::StrFormat("<0x%02X>", byte); }

// The byte that `piece` stands for, with capital letters; -1 for none.
inline int ByteOfPiece(absl::string_view piece) {
  if (piece.size() != 6 || !absl::StartsWith(piece, "<0x") || piece[5] != '>') return -1;
  const auto digit = [&](size_t i) {
    const char c = piece[i];
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
  };
  return digit(3) < 0 || digit(4) < 0 ? -1 : digit(3) * 16 + digit(4);
}

}  // namespace millrace

#endif  // MILLRACE_ENGINE_DATA_BYTE_PIECES_H_
