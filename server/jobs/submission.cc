#include "server/jobs/submission.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <random>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "server/base/errors.h"
#include "server/base/resource_names.h"

namespace millrace {
namespace {

constexpr size_t kMaxRequestIdLength = 64;
// Leaves room for the random ending within an id.
constexpr size_t kMaxStemLength = 48;
constexpr int kEndingLength = 6;

// A letter first, then letters, digits and single dashes.
std::string Stem(const std::string& name) {
  std::string stem;
  for (const char c : absl::AsciiStrToLower(name)) {
    if (stem.size() == kMaxStemLength) break;
    if (absl::ascii_islower(c) || (absl::ascii_isdigit(c) && !stem.empty())) {
      stem.push_back(c);
    } else if (!stem.empty() && stem.back() != '-') {
      stem.push_back('-');
    }
  }
  while (!stem.empty() && stem.back() == '-') stem.pop_back();
  return stem.empty() ? "job" : stem;
}

std::string RandomEnding() {
  static constexpr char kAlphabet[] = "abcdefghijkmnpqrstuvwxyz23456789";
  std::random_device random;
  std::string ending;
  for (int i = 0; i < kEndingLength; ++i) ending.push_back(kAlphabet[random() % 32]);
  return ending;
}

absl::Status Taken(const StoredJob& job, absl::string_view why) {
  return WithMetadata(
      MakeError(ErrorReason::kIdTaken, absl::StrCat("jobs/", job.id, " exists already ", why)),
      "job", JobName(job.id));
}

// Whether one of two jobs found, each perhaps null, is that of the request.
absl::StatusOr<const StoredJob*> Choose(const v1::CreateJobRequest& request,
                                        const StoredJob& submission, const StoredJob* by_request_id,
                                        const StoredJob* by_id) {
  if (by_request_id != nullptr) {
    if (!request.job_id().empty() && by_request_id->id != request.job_id()) {
      return Taken(*by_request_id, "for this request_id; use a new request_id for another job");
    }
    if (by_request_id->submitted_spec != submission.submitted_spec) {
      return Taken(*by_request_id, "for this request_id with another spec; use a new request_id");
    }
    return by_request_id;
  }
  if (by_id != nullptr && by_id->submitted_spec != submission.submitted_spec) {
    return Taken(*by_id, "with another spec; choose another id, or delete it first");
  }
  return by_id;
}

}  // namespace

absl::Status CheckCreateRequest(const v1::CreateJobRequest& request) {
  if (!request.job_id().empty()) MILLRACE_RETURN_IF_ERROR(CheckId("job_id", request.job_id()));
  if (request.request_id().size() > kMaxRequestIdLength) {
    return MakeFieldError(ErrorReason::kRequestInvalid,
                          {{"request_id", absl::StrCat(request.request_id().size(),
                                                       " characters are too many; give at most ",
                                                       kMaxRequestIdLength)}});
  }
  if (!request.has_spec()) {
    return MakeFieldError(ErrorReason::kConfigInvalid, {{"spec", "is required"}});
  }
  return absl::OkStatus();
}

std::string SpecFingerprint(const v1::JobSpec& spec) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  spec.SerializeToCodedStream(&coded);
  coded.Trim();
  return bytes;
}

absl::StatusOr<std::unique_ptr<StoredJob>> FindEarlierSubmission(
    JobStore* store, const v1::CreateJobRequest& request, const StoredJob& submission) {
  std::unique_ptr<StoredJob> by_request_id;
  std::unique_ptr<StoredJob> by_id;
  if (!request.request_id().empty()) {
    MILLRACE_ASSIGN_OR_RETURN(by_request_id, store->FindByRequestId(request.request_id()));
  }
  if (!request.job_id().empty()) {
    absl::StatusOr<StoredJob> found = store->GetJob(request.job_id());
    if (found.ok()) {
      by_id = std::make_unique<StoredJob>(*std::move(found));
    } else if (!absl::IsNotFound(found.status())) {
      return found.status();
    }
  }
  MILLRACE_ASSIGN_OR_RETURN(const StoredJob* chosen,
                            Choose(request, submission, by_request_id.get(), by_id.get()));
  if (chosen == nullptr) return std::unique_ptr<StoredJob>();
  return chosen == by_id.get() ? std::move(by_id) : std::move(by_request_id);
}

absl::StatusOr<StoredJob*> FindEarlierSubmission(JobTransaction& transaction,
                                                 const v1::CreateJobRequest& request,
                                                 const StoredJob& submission) {
  StoredJob* by_request_id = nullptr;
  StoredJob* by_id = nullptr;
  if (!request.request_id().empty()) {
    MILLRACE_ASSIGN_OR_RETURN(by_request_id, transaction.FindByRequestId(request.request_id()));
  }
  if (!request.job_id().empty()) {
    MILLRACE_ASSIGN_OR_RETURN(by_id, transaction.Find(request.job_id()));
  }
  MILLRACE_ASSIGN_OR_RETURN(const StoredJob* chosen,
                            Choose(request, submission, by_request_id, by_id));
  return chosen == by_id ? by_id : by_request_id;
}

absl::StatusOr<std::string> ChooseJobId(JobTransaction& transaction,
                                        const v1::CreateJobRequest& request) {
  if (!request.job_id().empty()) return request.job_id();
  while (true) {
    std::string id = absl::StrCat(Stem(request.spec().name()), "-", RandomEnding());
    MILLRACE_ASSIGN_OR_RETURN(const StoredJob* taken, transaction.Find(id));
    if (taken == nullptr) return id;
  }
}

}  // namespace millrace
