// NodeService: the box, and what is in use.
#ifndef MILLRACE_SERVER_RPC_NODE_SERVICE_H_
#define MILLRACE_SERVER_RPC_NODE_SERVICE_H_

#include <string>

#include "absl/time/time.h"
#include "millrace/v1/node_service.grpc.pb.h"
#include "server/jobs/job_manager.h"
#include "server/observe/host_reader.h"

namespace millrace {

class NodeServiceAdapter : public v1::NodeService::CallbackService {
 public:
  // `manager` outlives the adapter.
  NodeServiceAdapter(std::string data_dir, JobManager* manager);

  grpc::ServerUnaryReactor* GetNode(grpc::CallbackServerContext* context,
                                    const v1::GetNodeRequest* request, v1::Node* response) override;

 private:
  absl::Status Describe(v1::Node* node);

  const std::string data_dir_;
  JobManager* const manager_;
  const HostDescription host_;
  const absl::Time start_time_;
};

}  // namespace millrace

#endif  // MILLRACE_SERVER_RPC_NODE_SERVICE_H_
