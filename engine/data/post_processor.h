// The "post_processor" of a tokenizer.json: what is put around a text's tokens.
#ifndef MILLRACE_ENGINE_DATA_POST_PROCESSOR_H_
#define MILLRACE_ENGINE_DATA_POST_PROCESSOR_H_

#include <string>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace millrace {

// The token, as the file writes it, that `value` puts before a text; empty for none. Refused: what
// does more than put tokens around a text, and more than one token before it.
absl::StatusOr<std::string> BeginOfPostProcessor(const nlohmann::json& value);

}  // namespace millrace

#endif  // MILLRACE_ENGINE_DATA_POST_PROCESSOR_H_
