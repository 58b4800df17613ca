#include "engine/base/field_problem.h"

#include "absl/strings/str_cat.h"

namespace millrace {

absl::Status StatusOf(const std::vector<FieldProblem>& problems) {
  if (problems.empty()) return absl::OkStatus();
  std::string text;
  for (const FieldProblem& problem : problems) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", problem.field, ": ", problem.message);
  }
  return absl::InvalidArgumentError(text);
}

}  // namespace millrace
