// Passing errors up.
//
//   absl::Status Load(const std::string& path) {
//     MILLRACE_ASSIGN_OR_RETURN(std::string text, ReadFile(path));
//     MILLRACE_RETURN_IF_ERROR(Parse(text));
//     return absl::OkStatus();
//   }
#ifndef MILLRACE_ENGINE_BASE_STATUS_MACROS_H_
#define MILLRACE_ENGINE_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define MILLRACE_RETURN_IF_ERROR(expression)                                    \
  do {                                                                          \
    if (absl::Status millrace_status_ = (expression); !millrace_status_.ok()) { \
      return millrace_status_;                                                  \
    }                                                                           \
  } while (false)

#define MILLRACE_CONCAT_INNER_(a, b) a##b
#define MILLRACE_CONCAT_(a, b) MILLRACE_CONCAT_INNER_(a, b)

#define MILLRACE_ASSIGN_OR_RETURN(declaration, expression)                                     \
  MILLRACE_ASSIGN_OR_RETURN_IMPL_(MILLRACE_CONCAT_(millrace_statusor_, __LINE__), declaration, \
                                  expression)

#define MILLRACE_ASSIGN_OR_RETURN_IMPL_(temporary, declaration, expression) \
  auto temporary = (expression);                                            \
  if (!temporary.ok()) return std::move(temporary).status();                \
  declaration = std::move(temporary).value()

#endif  // MILLRACE_ENGINE_BASE_STATUS_MACROS_H_
