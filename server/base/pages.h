// Pages of a list: sizes and opaque tokens.
//
//   MILLRACE_ASSIGN_OR_RETURN(int size, PageSize(request.page_size()));
//   MILLRACE_ASSIGN_OR_RETURN(std::string after, DecodePageToken(request.page_token(), filter));
//   … response.set_next_page_token(EncodePageToken(last_key, filter));
//
// A token remembers the filter it was made for, so that pages of two lists are never mixed.
#ifndef MILLRACE_SERVER_BASE_PAGES_H_
#define MILLRACE_SERVER_BASE_PAGES_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace millrace {

// 0 is 50; more than 1000 is 1000; negative is REQUEST_INVALID.
absl::StatusOr<int32_t> PageSize(int32_t requested);

// `key` is where the next page begins, in the list's own terms; not empty.
std::string EncodePageToken(absl::string_view key, absl::string_view filter);

// The key; empty for an empty token (the first page). REQUEST_INVALID for a token that was not made
// by EncodePageToken with the same filter.
absl::StatusOr<std::string> DecodePageToken(absl::string_view token, absl::string_view filter);

}  // namespace millrace

#endif  // MILLRACE_SERVER_BASE_PAGES_H_
