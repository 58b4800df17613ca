// The stream of ReadLogs.
#ifndef MILLRACE_SERVER_RPC_LOG_STREAM_H_
#define MILLRACE_SERVER_RPC_LOG_STREAM_H_

#include <grpcpp/support/server_callback.h>

#include "millrace/v1/job_service.pb.h"
#include "server/base/paths.h"
#include "server/jobs/job_manager.h"

namespace millrace {

// A stream that owns itself. With `follow` on a job that was never started it waits for the first
// attempt. It reads on only once what it sent was taken, so a flood of lines fills no memory.
// `manager` outlives it.
grpc::ServerWriteReactor<v1::ReadLogsResponse>* StartLogStream(const DataPaths& paths,
                                                               JobManager* manager,
                                                               const v1::ReadLogsRequest& request);

}  // namespace millrace

#endif  // MILLRACE_SERVER_RPC_LOG_STREAM_H_
