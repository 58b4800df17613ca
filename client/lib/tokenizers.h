// Training tokenizers on the daemon, and fetching them.
#ifndef MILLRACE_CLIENT_LIB_TOKENIZERS_H_
#define MILLRACE_CLIENT_LIB_TOKENIZERS_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "client/lib/connection.h"
#include "client/lib/resume_stream.h"

namespace millrace {

// Trains a tokenizer and waits for it. Where the connection breaks it is trained anew: the daemon
// keeps nothing of a training that nobody waits for.
absl::StatusOr<v1::Tokenizer> TrainTokenizer(
    Connection& connection, const v1::TrainTokenizerRequest& request,
    const std::function<void(const v1::TrainTokenizerResponse::Progress&)>& on_progress,
    const ReconnectCallback& on_reconnect);

// The tokenizer.json of `name`.
absl::StatusOr<std::string> FetchTokenizer(Connection& connection, const std::string& name,
                                           const ReconnectCallback& on_reconnect);

}  // namespace millrace

#endif  // MILLRACE_CLIENT_LIB_TOKENIZERS_H_
