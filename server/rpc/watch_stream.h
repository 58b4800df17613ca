// The stream of WatchJob: each watcher reads committed events in small pages at its own pace, so a
// slow one holds up nobody and costs one page of memory.
#ifndef MILLRACE_SERVER_RPC_WATCH_STREAM_H_
#define MILLRACE_SERVER_RPC_WATCH_STREAM_H_

#include <grpcpp/support/server_callback.h>

#include "millrace/v1/job_service.pb.h"
#include "server/jobs/job_manager.h"
#include "server/rpc/executor.h"

namespace millrace {

// A stream that owns itself. What a commit brings is read and sent on `executor`, so that watchers
// hold up no commit. `manager` outlives the stream; `executor` ends after the server and before the
// manager.
grpc::ServerWriteReactor<v1::JobEvent>* StartWatchStream(JobManager* manager, Executor* executor,
                                                         const v1::WatchJobRequest& request);

}  // namespace millrace

#endif  // MILLRACE_SERVER_RPC_WATCH_STREAM_H_
