#include "client/cli/node_command.h"

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/cli/human.h"
#include "client/cli/table.h"

namespace millrace {

absl::StatusOr<int> ShowNode(const Session& session) {
  absl::StatusOr<v1::Node> node = session.connection->Call(
      session.connection->node(), &v1::NodeService::StubInterface::GetNode, v1::GetNodeRequest());
  if (!node.ok()) return node.status();
  if (session.Print(*node)) return 0;
  Fields fields;
  fields.Add("Host", node->hostname());
  fields.Add("Address", session.connection->options().address);
  fields.Add("Millrace", node->version());
  fields.Add("System", node->operating_system());
  fields.Add("Cores", absl::StrCat(node->cores()));
  fields.Add("Memory", absl::StrCat(HumanBytes(node->memory_available_bytes()), " free of ",
                                    HumanBytes(node->memory_total_bytes())));
  fields.Add("Storage", absl::StrCat(HumanBytes(node->storage_free_bytes()), " free of ",
                                     HumanBytes(node->storage_total_bytes())));
  fields.Add("Jobs",
             absl::StrCat(node->running_jobs(), " running, ", node->queued_jobs(), " queued"));
  if (node->has_start_time()) {
    fields.Add("Up since", absl::StrCat(HumanTime(node->start_time()), " (",
                                        HumanAge(node->start_time(), session.now()), ")"));
  }
  std::vector<std::string> versions;
  // A protobuf map has no order of its own.
  std::map<std::string, std::string> sorted(node->library_versions().begin(),
                                            node->library_versions().end());
  for (const auto& [library, version] : sorted) {
    versions.push_back(absl::StrCat(library, " ", version));
  }
  fields.Add("Libraries", absl::StrJoin(versions, ", "));
  session.out() << fields.Format(session.terminal());
  if (node->devices().empty()) return 0;
  Table table({{"DEVICE"}, {"MODEL"}, {"MEMORY", Table::kRight}, {"JOB"}, {"FEATURES"}});
  for (const v1::Device& device : node->devices()) {
    table.AddRow({device.name(), device.model(),
                  absl::StrCat(HumanBytes(device.memory_used_bytes()), " of ",
                               HumanBytes(device.memory_total_bytes())),
                  device.job().empty() ? "-" : absl::StrReplaceAll(device.job(), {{"jobs/", ""}}),
                  absl::StrJoin(device.features(), " ")});
  }
  session.out() << "\n" << table.Format(session.terminal());
  return 0;
}

}  // namespace millrace
