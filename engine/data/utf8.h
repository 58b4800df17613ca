// Checking that bytes are text.
#ifndef MILLRACE_ENGINE_DATA_UTF8_H_
#define MILLRACE_ENGINE_DATA_UTF8_H_

#include <cstddef>

#include "absl/strings/string_view.h"

namespace millrace {

// Index of the first byte that is NUL or does not belong to a well-formed UTF-8 sequence (Unicode
// standard, table 3-7), or text.size() when there is none.
size_t FirstNonTextByte(absl::string_view text);

// Largest index ≤ `end` that is not inside a UTF-8 sequence of `text`; end ≤ text.size().
size_t CharacterBoundary(absl::string_view text, size_t end);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_DATA_UTF8_H_
