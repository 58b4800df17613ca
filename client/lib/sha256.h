// SHA-256 of data that comes in pieces.
#ifndef MILLRACE_CLIENT_LIB_SHA256_H_
#define MILLRACE_CLIENT_LIB_SHA256_H_

#include <memory>
#include <string>

#include "absl/strings/string_view.h"

struct evp_md_ctx_st;

namespace millrace {

class Sha256 {
 public:
  Sha256();
  ~Sha256();

  void Update(absl::string_view data);
  // Lower-case hexadecimal; nothing may be added after.
  std::string Finish();

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

}  // namespace millrace

#endif  // MILLRACE_CLIENT_LIB_SHA256_H_
