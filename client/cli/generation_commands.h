// millrace generate, millrace evaluate.
#ifndef MILLRACE_CLIENT_CLI_GENERATION_COMMANDS_H_
#define MILLRACE_CLIENT_CLI_GENERATION_COMMANDS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/session.h"
#include "millrace/v1/generation.pb.h"

namespace millrace {

struct GenerateArgs {
  std::string model;                 // as the command line has it
  std::vector<std::string> prompts;  // "-" is standard input
  std::string prompts_file;          // empty for none
  // All else.
  v1::GenerateTextRequest request;
};

// Streams the text of one prompt as it comes; of several, prints one after the other in the order
// of the prompts. JSON and YAML are one object a prompt.
absl::StatusOr<int> Generate(const Session& session, const GenerateArgs& args);

struct EvaluateArgs {
  std::string model, dataset;
  // All else.
  v1::EvaluateTextRequest request;
};

// JSON and YAML are the last message alone.
absl::StatusOr<int> Evaluate(const Session& session, const EvaluateArgs& args);

}  // namespace millrace

#endif  // MILLRACE_CLIENT_CLI_GENERATION_COMMANDS_H_
