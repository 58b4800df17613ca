// The commands about tokenizers.
#ifndef MILLRACE_CLIENT_CLI_TOKENIZER_COMMANDS_H_
#define MILLRACE_CLIENT_CLI_TOKENIZER_COMMANDS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/session.h"

namespace millrace {

struct TrainTokenizerArgs {
  std::string dataset;
  // Empty: made of the dataset and the size.
  std::string id;
  int32_t vocab_size = 0;
  int32_t min_frequency = 0;
  std::vector<std::string> special_tokens;
  std::string split;
};
absl::StatusOr<int> TrainTokenizerCommand(const Session& session, const TrainTokenizerArgs& args);

absl::StatusOr<int> ListTokenizers(const Session& session);
absl::StatusOr<int> ShowTokenizer(const Session& session, const std::string& id);
// Its tokenizer.json, to the file `path`; when that is empty, to `ID.json` below the current
// folder.
absl::StatusOr<int> DownloadTokenizerCommand(const Session& session, const std::string& id,
                                             const std::string& path);
absl::StatusOr<int> DeleteTokenizer(const Session& session, const std::string& id);

}  // namespace millrace

#endif  // MILLRACE_CLIENT_CLI_TOKENIZER_COMMANDS_H_
