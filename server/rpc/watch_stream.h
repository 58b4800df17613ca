// The stream of WatchJob: each watcher reads committed events in small pages at its own pace, so a
// slow one holds up nobody and costs one page of memory.
#ifndef MILLRACE_SERVER_RPC_WATCH_STREAM_H_
#define MILLRACE_SERVER_RPC_WATCH_STREAM_H_

#include <grpcpp/support/server_callback.h>

#include "millrace/v1/job_service.pb.h"
#include "server/jobs/job_manager.h"

namespace millrace {

// A stream that owns itself. `manager` outlives it.
grpc::ServerWriteReactor<v1::JobEvent>* StartWatchStream(JobManager* manager,
                                                         const v1::WatchJobRequest& request);

}  // namespace millrace

#endif  // MILLRACE_SERVER_RPC_WATCH_STREAM_H_
