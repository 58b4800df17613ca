#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/exit_codes.h"
#include "client/cli/generation_commands.h"
#include "client/cli/human.h"
#include "client/cli/model_argument.h"
#include "client/cli/status_line.h"
#include "client/cli/table.h"
#include "client/lib/generation.h"

namespace millrace {

absl::StatusOr<int> Evaluate(const Session& session, const EvaluateArgs& args) {
  v1::EvaluateTextRequest request = args.request;
  request.set_dataset(ResourceName("datasets", args.dataset));
  v1::EvaluateTextResponse last;
  StatusLine line(*session.environment.error, session.environment.error_terminal);
  const absl::Status status = WithModelName(args.model, [&](const std::string& name) {
    request.set_model(name);
    return EvaluateText(
        *session.connection, request, [&](const v1::EvaluateTextResponse& response) {
          last = response;
          if (session.format != OutputFormat::kTable || response.complete()) return;
          const double ratio = static_cast<double>(response.sequences_done()) /
                               static_cast<double>(response.sequences_total());
          line.Show({ProgressBar(ratio, 20, session.environment.error_terminal.unicode),
                     absl::StrCat(response.sequences_done(), "/", response.sequences_total()),
                     absl::StrCat("loss ", HumanLoss(response.loss()))});
        });
  });
  line.Clear();
  if (absl::IsCancelled(status)) return kExitInterrupted;
  if (!status.ok()) return status;
  if (session.Print(last)) return 0;
  Fields fields;
  fields.Add("model", last.model());
  fields.Add("dataset", request.dataset());
  fields.Add("sequences", absl::StrCat(last.sequences_done()));
  fields.Add("tokens", absl::StrCat(last.tokens()));
  fields.Add("loss", HumanLoss(last.loss()));
  fields.Add("perplexity", absl::StrFormat("%.4g", last.perplexity()));
  fields.Add("speed", absl::StrCat(HumanCount(static_cast<double>(last.tokens()) / last.seconds()),
                                   " tokens/s"));
  session.out() << fields.Format(session.terminal()) << std::flush;
  return 0;
}

}  // namespace millrace
