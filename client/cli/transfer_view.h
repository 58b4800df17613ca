// How an upload or a download looks while it goes on.
#ifndef MILLRACE_CLIENT_CLI_TRANSFER_VIEW_H_
#define MILLRACE_CLIENT_CLI_TRANSFER_VIEW_H_

#include <string>

#include "client/cli/session.h"
#include "client/cli/status_line.h"
#include "client/lib/transfer.h"

namespace millrace {

// Draws on standard error, so that standard output stays for the result.
class TransferView {
 public:
  // `verb` is `uploading` or `downloading`, `what` its object.
  TransferView(const Session& session, const std::string& verb, const std::string& what);

  // Callbacks that draw here; this must outlive them.
  TransferOptions Options();

 private:
  void OnProgress(const TransferProgress& progress);

  const Session& session_;
  const std::string verb_;
  const std::string what_;
  StatusLine line_;
  absl::Time start_ = absl::InfinitePast();
  int64_t start_bytes_ = 0;
};

}  // namespace millrace

#endif  // MILLRACE_CLIENT_CLI_TRANSFER_VIEW_H_
