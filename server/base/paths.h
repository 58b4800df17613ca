// Where things lie in the data folder.
//
//   endpoint                     the bound addresses, written by the running daemon
//   worker.sock                  where workers connect
//   lock                         held by the running daemon
//   millrace.db                  the job store
//   cpu-profile-TYPE-N.json      how fast N threads of this processor are, computing in TYPE
//   jobs/ID/                     one job
//     lock                       held by its worker as long as that lives
//     attempts/N/log             standard output and error of its Nth worker
//     checkpoints/STEP/          complete and incomplete checkpoints
//     prepared/                  its tokens, until it has ended
//     tokenizer/                 its tokenizer's files
//     traces/steps-A-B.json      what happened on each stream in steps A to B
//   datasets/ID/                 one dataset
//   models/ID/                   one model
//   tokenizers/ID/               one tokenizer
//   inference/                   sockets, logs and tokens of loaded models; emptied at start
//   trash/                       on its way out; emptied at start
#ifndef MILLRACE_SERVER_BASE_PATHS_H_
#define MILLRACE_SERVER_BASE_PATHS_H_

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace millrace {

class DataPaths {
 public:
  // `root` is an absolute path.
  explicit DataPaths(std::string root) : root_(std::move(root)) {}

  const std::string& root() const { return root_; }
  std::string Endpoint() const { return absl::StrCat(root_, "/endpoint"); }
  std::string Lock() const { return absl::StrCat(root_, "/lock"); }
  std::string Database() const { return absl::StrCat(root_, "/millrace.db"); }
  std::string WorkerSocket() const { return absl::StrCat(root_, "/worker.sock"); }
  std::string CpuProfile(absl::string_view compute, int64_t threads) const {
    return absl::StrCat(root_, "/cpu-profile-", compute, "-", threads, ".json");
  }
  std::string Inference() const { return absl::StrCat(root_, "/inference"); }
  std::string Trash() const { return absl::StrCat(root_, "/trash"); }

  // Folders of jobs that the store did not know when a new job took their id.
  std::string Unclaimed() const { return absl::StrCat(root_, "/unclaimed"); }

  std::string Jobs() const { return absl::StrCat(root_, "/jobs"); }
  std::string Job(absl::string_view id) const { return absl::StrCat(root_, "/jobs/", id); }
  std::string JobLock(absl::string_view id) const { return absl::StrCat(Job(id), "/lock"); }
  std::string Attempt(absl::string_view id, int32_t attempt) const {
    return absl::StrCat(Job(id), "/attempts/", attempt);
  }
  std::string AttemptLog(absl::string_view id, int32_t attempt) const {
    return absl::StrCat(Attempt(id, attempt), "/log");
  }
  std::string Checkpoints(absl::string_view id) const {
    return absl::StrCat(Job(id), "/checkpoints");
  }
  std::string Prepared(absl::string_view id) const { return absl::StrCat(Job(id), "/prepared"); }
  std::string Traces(absl::string_view id) const { return absl::StrCat(Job(id), "/traces"); }

  std::string Datasets() const { return absl::StrCat(root_, "/datasets"); }
  std::string Dataset(absl::string_view id) const { return absl::StrCat(root_, "/datasets/", id); }
  std::string Models() const { return absl::StrCat(root_, "/models"); }
  std::string Model(absl::string_view id) const { return absl::StrCat(root_, "/models/", id); }
  std::string Tokenizers() const { return absl::StrCat(root_, "/tokenizers"); }
  std::string Tokenizer(absl::string_view id) const {
    return absl::StrCat(root_, "/tokenizers/", id);
  }

 private:
  std::string root_;
};

}  // namespace millrace

#endif  // MILLRACE_SERVER_BASE_PATHS_H_
