// What of the node a job needs as long as it has not ended.
#ifndef MILLRACE_SERVER_JOBS_JOB_RESOURCES_H_
#define MILLRACE_SERVER_JOBS_JOB_RESOURCES_H_

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "millrace/v1/job_spec.pb.h"

namespace millrace {

// Names of resources: its dataset, the model that it begins with (of a checkpoint, the job), and a
// tokenizer of another than that.
inline std::vector<std::string> ResourcesOf(const v1::JobSpec& spec) {
  std::vector<std::string> names = {spec.data().train()};
  for (const std::string& name : {spec.model().from(), spec.tokenizer()}) {
    // `byte` is nobody's.
    if (!absl::StrContains(name, '/')) continue;
    const std::vector<std::string> parts = absl::StrSplit(name, '/');
    names.push_back(absl::StrCat(parts[0], "/", parts[1]));
  }
  return names;
}

}  // namespace millrace

#endif  // MILLRACE_SERVER_JOBS_JOB_RESOURCES_H_
