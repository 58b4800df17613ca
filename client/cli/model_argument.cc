#include "client/cli/model_argument.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/lib/errors.h"

namespace millrace {

absl::Status WithModelName(const std::string& argument,
                           absl::FunctionRef<absl::Status(const std::string& name)> call) {
  if (absl::StrContains(argument, "/")) return call(argument);
  absl::Status status = call(absl::StrCat("jobs/", argument));
  if (ErrorReason(status) != "JOB_NOT_FOUND") return status;
  status = call(absl::StrCat("models/", argument));
  if (!absl::IsNotFound(status) || ErrorReason(status) == "DATASET_NOT_FOUND") return status;
  return WithMessage(status, absl::StrCat("there is no model and no job `", argument,
                                          "`; `millrace models list` and `millrace jobs` show "
                                          "what there is"));
}

}  // namespace millrace
