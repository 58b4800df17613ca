#include "server/rpc/node_service.h"

#include <dnnl.h>
#include <google/protobuf/stubs/common.h>
#include <grpcpp/grpcpp.h>
#include <sqlite3.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "engine/base/status_macros.h"
#include "server/base/resource_names.h"
#include "server/base/version.h"
#include "server/rpc/unary.h"

namespace millrace {

NodeServiceAdapter::NodeServiceAdapter(std::string data_dir, JobManager* manager)
    : data_dir_(std::move(data_dir)),
      manager_(manager),
      host_(ReadHostDescription()),
      start_time_(absl::Now()) {}

grpc::ServerUnaryReactor* NodeServiceAdapter::GetNode(grpc::CallbackServerContext* context,
                                                      const v1::GetNodeRequest* request,
                                                      v1::Node* response) {
  return FinishUnary(context, [&] { return Describe(response); });
}

absl::Status NodeServiceAdapter::Describe(v1::Node* node) {
  MILLRACE_ASSIGN_OR_RETURN(const HostMemory memory, ReadHostMemory());
  MILLRACE_ASSIGN_OR_RETURN(const StorageSpace storage, ReadStorageSpace(data_dir_));
  MILLRACE_ASSIGN_OR_RETURN(const auto counts, manager_->CountByState());
  node->set_hostname(host_.hostname);
  node->set_version(kVersion);
  node->set_operating_system(host_.operating_system);
  node->set_cores(host_.cores);
  node->set_memory_total_bytes(memory.total_bytes);
  node->set_memory_available_bytes(memory.available_bytes);
  node->set_storage_total_bytes(storage.total_bytes);
  node->set_storage_free_bytes(storage.free_bytes);
  *node->mutable_start_time() = ToTimestamp(start_time_);

  v1::Device* device = node->add_devices();
  device->set_name("cpu");
  device->set_model(host_.processor);
  device->set_memory_total_bytes(memory.total_bytes);
  device->set_memory_used_bytes(memory.total_bytes - memory.available_bytes);
  std::vector<std::string> running = manager_->LiveWorkers();
  for (std::string& id : running) id = JobName(id);
  device->set_job(absl::StrJoin(running, ", "));
  for (const std::string& feature : host_.processor_features) device->add_features(feature);

  for (const auto& [state, count] : counts) {
    if (state == v1::Job::QUEUED) node->set_queued_jobs(static_cast<int32_t>(count));
  }
  node->set_running_jobs(static_cast<int32_t>(running.size()));

  auto& versions = *node->mutable_library_versions();
  const dnnl_version_t* dnnl = dnnl_version();
  versions["onednn"] = absl::StrCat(dnnl->major, ".", dnnl->minor, ".", dnnl->patch);
  versions["grpc"] = grpc::Version();
  versions["protobuf"] = google::protobuf::internal::VersionString(GOOGLE_PROTOBUF_VERSION);
  versions["sqlite"] = sqlite3_libversion();
  return absl::OkStatus();
}

}  // namespace millrace
