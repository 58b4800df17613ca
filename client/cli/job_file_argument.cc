#include "client/cli/job_file_argument.h"

#include <filesystem>
#include <fstream>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "proto/job_file/job_file.h"

namespace millrace {
namespace {

// More than a job file may have; the reader says so.
constexpr std::streamsize kMaxFileBytes = 2 << 20;

absl::StatusOr<std::string> ReadAll(std::istream& in, const std::string& name) {
  std::string text(kMaxFileBytes, '\0');
  in.read(text.data(), kMaxFileBytes);
  if (in.bad() || (in.fail() && !in.eof())) {
    return absl::InvalidArgumentError(absl::StrCat("cannot read ", name));
  }
  text.resize(static_cast<size_t>(in.gcount()));
  return text;
}

}  // namespace

absl::StatusOr<v1::JobSpec> ReadJobFile(const Session& session, const std::string& file) {
  absl::StatusOr<std::string> text;
  if (file == "-") {
    text = ReadAll(*session.environment.in, "standard input");
  } else {
    std::ifstream in(file, std::ios::binary);
    if (!in) {
      return absl::NotFoundError(absl::StrCat("there is no job file ", file, " that can be read"));
    }
    text = ReadAll(in, file);
  }
  if (!text.ok()) return text.status();
  absl::StatusOr<v1::JobSpec> spec =
      ParseJobFile(*text, file == "-" ? "." : std::filesystem::path(file).parent_path().string());
  if (!spec.ok()) {
    std::string prefix = absl::StrCat(file == "-" ? "standard input" : file, ": ");
    return absl::InvalidArgumentError(absl::StrCat(
        prefix, absl::StrReplaceAll(spec.status().message(), {{"\n", "\n" + prefix}})));
  }
  return spec;
}

}  // namespace millrace
