// What uploads and downloads tell while they work.
#ifndef MILLRACE_CLIENT_LIB_TRANSFER_H_
#define MILLRACE_CLIENT_LIB_TRANSFER_H_

#include <cstdint>
#include <functional>

#include "client/lib/resume_stream.h"

namespace millrace {

struct TransferProgress {
  enum Phase {
    // Reading local files to know their hashes.
    HASHING,
    // Bytes go over the wire; what was there before counts as done.
    TRANSFERRING,
    // The other side checks what came.
    CHECKING,
  };
  Phase phase = HASHING;
  int64_t done_bytes = 0;
  int64_t total_bytes = 0;
};

struct TransferOptions {
  std::function<void(const TransferProgress&)> on_progress;
  ReconnectCallback on_reconnect;
};

}  // namespace millrace

#endif  // MILLRACE_CLIENT_LIB_TRANSFER_H_
