#include "client/lib/tokenizers.h"

#include "absl/strings/str_cat.h"
#include "client/lib/errors.h"

namespace millrace {

absl::StatusOr<v1::Tokenizer> TrainTokenizer(
    Connection& connection, const v1::TrainTokenizerRequest& request,
    const std::function<void(const v1::TrainTokenizerResponse::Progress&)>& on_progress,
    const ReconnectCallback& on_reconnect) {
  v1::Tokenizer tokenizer;
  bool broken = false;
  absl::Status status = ResumeStream(
      connection, on_reconnect,
      [&](grpc::ClientContext* context, bool* progress) -> absl::Status {
        auto stream = connection.tokenizers().TrainTokenizer(context, request);
        v1::TrainTokenizerResponse response;
        while (stream->Read(&response)) {
          *progress = true;
          if (response.has_tokenizer()) {
            tokenizer = response.tokenizer();
          } else if (on_progress) {
            on_progress(response.progress());
          }
        }
        absl::Status end = StatusFromGrpc(stream->Finish());
        // The end of the try before was lost, not its result.
        if (broken && ErrorReason(end) == "ID_TAKEN") {
          v1::GetTokenizerRequest get;
          get.set_name(absl::StrCat("tokenizers/", request.tokenizer_id()));
          absl::StatusOr<v1::Tokenizer> there = connection.Call(
              connection.tokenizers(), &v1::TokenizerService::StubInterface::GetTokenizer, get);
          if (!there.ok()) return there.status();
          tokenizer = *there;
          return absl::OkStatus();
        }
        broken = true;
        if (end.ok() && tokenizer.name().empty()) {
          return absl::AbortedError("the daemon ended the training early");
        }
        return end;
      },
      /*known_to_be_there=*/false);
  if (!status.ok()) return status;
  return tokenizer;
}

absl::StatusOr<std::string> FetchTokenizer(Connection& connection, const std::string& name,
                                           const ReconnectCallback& on_reconnect) {
  std::string content;
  absl::Status status = ResumeStream(
      connection, on_reconnect,
      [&](grpc::ClientContext* context, bool* progress) -> absl::Status {
        content.clear();
        v1::DownloadTokenizerRequest request;
        request.set_name(name);
        auto stream = connection.tokenizers().DownloadTokenizer(context, request);
        v1::DownloadTokenizerResponse response;
        while (stream->Read(&response)) {
          *progress = true;
          content += response.data();
        }
        return StatusFromGrpc(stream->Finish());
      },
      /*known_to_be_there=*/false);
  if (!status.ok()) return status;
  return content;
}

}  // namespace millrace
