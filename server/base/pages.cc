#include "server/base/pages.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "server/base/errors.h"

namespace millrace {
namespace {

constexpr int32_t kDefaultPageSize = 50;
constexpr int32_t kMaxPageSize = 1000;

}  // namespace

absl::StatusOr<int32_t> PageSize(int32_t requested) {
  if (requested < 0) {
    return MakeFieldError(
        ErrorReason::kRequestInvalid,
        {{"page_size", absl::StrCat(requested, " is negative; give 0 for the default of ",
                                    kDefaultPageSize, " or a positive number")}});
  }
  return requested == 0 ? kDefaultPageSize : std::min(requested, kMaxPageSize);
}

std::string EncodePageToken(absl::string_view key, absl::string_view filter) {
  return absl::WebSafeBase64Escape(absl::StrCat(filter, "\n", key));
}

absl::StatusOr<std::string> DecodePageToken(absl::string_view token, absl::string_view filter) {
  if (token.empty()) return "";
  std::string text;
  const std::string prefix = absl::StrCat(filter, "\n");
  if (!absl::WebSafeBase64Unescape(token, &text) || text.size() <= prefix.size() ||
      text.compare(0, prefix.size(), prefix) != 0) {
    return MakeFieldError(ErrorReason::kRequestInvalid,
                          {{"page_token",
                            "was not given out for this list; begin again without one, and keep "
                            "the filter the same from page to page"}});
  }
  return text.substr(prefix.size());
}

}  // namespace millrace
