// The stream of ReadTrace.
#ifndef MILLRACE_SERVER_RPC_TRACE_STREAM_H_
#define MILLRACE_SERVER_RPC_TRACE_STREAM_H_

#include <grpcpp/support/server_callback.h>

#include "millrace/v1/job_service.pb.h"
#include "server/base/paths.h"
#include "server/jobs/job_manager.h"

namespace millrace {

// A stream that owns itself. It reads on only once what it sent was taken. `manager` is asked for
// the job at the start alone.
grpc::ServerWriteReactor<v1::ReadTraceResponse>* StartTraceStream(
    const DataPaths& paths, JobManager* manager, const v1::ReadTraceRequest& request);

}  // namespace millrace

#endif  // MILLRACE_SERVER_RPC_TRACE_STREAM_H_
