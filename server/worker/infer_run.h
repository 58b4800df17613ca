// A worker that serves one model: InferenceService on a Unix socket.
//
// It listens at once; the model is loaded meanwhile, and calls wait for it. A model that cannot be
// loaded is the answer to every call. Calls run side by side on the same threads.
#ifndef MILLRACE_SERVER_WORKER_INFER_RUN_H_
#define MILLRACE_SERVER_WORKER_INFER_RUN_H_

#include <spdlog/logger.h>

#include <string>

#include "server/worker/exit_codes.h"

namespace millrace {

struct InferOptions {
  std::string socket;   // where to listen
  std::string model;    // model directory, checkpoint or GGUF file
  std::string compute;  // "bf16", "f32"; empty: bf16 where the processor has it
  int threads = 0;      // 0: the machine's cores
  // Folder for tokens of datasets; what is there may be used again.
  std::string token_folder;
  // Open file that is readable, or at its end, once nobody needs this process; -1 for none.
  int lifeline_fd = -1;
};

// Serves until the lifeline ends or a signal ends the process.
WorkerExitCode RunInference(const InferOptions& options, spdlog::logger& log);

}  // namespace millrace

#endif  // MILLRACE_SERVER_WORKER_INFER_RUN_H_
