// The characters by which byte-level vocabularies write bytes: GPT-2's `bytes_to_unicode`.
#ifndef MILLRACE_ENGINE_DATA_BYTE_ALPHABET_H_
#define MILLRACE_ENGINE_DATA_BYTE_ALPHABET_H_

#include <string>

#include "absl/strings/string_view.h"

namespace millrace {

// Appends the bytes that `token` (well-formed UTF-8) stands for. False, having appended nothing,
// when a character of it stands for no byte.
bool AppendBytesOfToken(absl::string_view token, std::string* bytes);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_DATA_BYTE_ALPHABET_H_
