#include "client/cli/transfer_view.h"

#include "absl/strings/str_cat.h"
#include "client/cli/human.h"

namespace millrace {
namespace {

constexpr int kBarColumns = 22;

Terminal LineTerminal(const Session& session) {
  Terminal terminal = session.environment.error_terminal;
  terminal.interactive = terminal.interactive && session.format == OutputFormat::kTable;
  return terminal;
}

}  // namespace

TransferView::TransferView(const Session& session, const std::string& verb, const std::string& what)
    : session_(session),
      verb_(verb),
      what_(what),
      line_(*session.environment.error, LineTerminal(session)) {}

TransferOptions TransferView::Options() {
  TransferOptions options;
  options.on_progress = [this](const TransferProgress& progress) { OnProgress(progress); };
  options.on_reconnect = [this](const absl::Status&) {
    line_.Clear();
    session_.Note("the connection to the daemon broke; going on where it ended");
  };
  return options;
}

void TransferView::OnProgress(const TransferProgress& progress) {
  if (progress.phase == TransferProgress::CHECKING) {
    line_.Show({absl::StrCat("checking ", what_)});
    return;
  }
  double ratio = progress.total_bytes > 0 ? static_cast<double>(progress.done_bytes) /
                                                static_cast<double>(progress.total_bytes)
                                          : 1;
  std::string amount =
      absl::StrCat(HumanBytes(progress.done_bytes), " of ", HumanBytes(progress.total_bytes));
  if (progress.phase == TransferProgress::HASHING) {
    line_.Show({absl::StrCat("reading ", what_), HumanPercent(ratio), amount});
    return;
  }
  if (start_ == absl::InfinitePast()) {
    start_ = session_.now();
    start_bytes_ = progress.done_bytes;
  }
  std::string rate;
  std::string remaining;
  absl::Duration elapsed = session_.now() - start_;
  double bytes_per_second = static_cast<double>(progress.done_bytes - start_bytes_) /
                            std::max(absl::ToDoubleSeconds(elapsed), 1e-3);
  if (elapsed > absl::Milliseconds(300) && bytes_per_second > 0) {
    rate = absl::StrCat(HumanBytes(static_cast<int64_t>(bytes_per_second)), "/s");
    remaining = absl::StrCat(
        "eta ",
        HumanDuration(absl::Seconds(
            static_cast<double>(progress.total_bytes - progress.done_bytes) / bytes_per_second)));
  }
  line_.Show({absl::StrCat(verb_, " ", what_), HumanPercent(ratio), amount, rate, remaining,
              ProgressBar(ratio, kBarColumns, session_.terminal().unicode)});
}

}  // namespace millrace
