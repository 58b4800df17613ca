#include "server/rpc/tokenizer_service.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/file.h"
#include "engine/base/status_macros.h"
#include "google/protobuf/util/time_util.h"
#include "server/base/pages.h"
#include "server/base/resource_names.h"
#include "server/blobs/tokenizer_store.h"
#include "server/rpc/status_to_grpc.h"

namespace millrace {
namespace {

constexpr size_t kChunkBytes = size_t{1} << 20;

v1::Tokenizer ToProto(const StoredBlob& tokenizer) {
  v1::Tokenizer proto;
  proto.set_name(TokenizerName(tokenizer.id));
  proto.set_vocab_size(NumberFact(tokenizer, tokenizer_fact::kVocab));
  proto.set_dataset(TextFact(tokenizer, tokenizer_fact::kDataset));
  proto.set_size_bytes(tokenizer.size_bytes);
  *proto.mutable_create_time() = google::protobuf::util::TimeUtil::NanosecondsToTimestamp(
      absl::ToUnixNanos(tokenizer.create_time));
  return proto;
}

}  // namespace

grpc::Status TokenizerServiceImpl::TrainTokenizer(
    grpc::ServerContext* context, const v1::TrainTokenizerRequest* request,
    grpc::ServerWriter<v1::TrainTokenizerResponse>* writer) {
  v1::TrainTokenizerResponse response;
  TokenizerTrainer::Request wanted;
  wanted.id = request->tokenizer_id();
  wanted.dataset = request->dataset();
  wanted.vocab_size = request->vocab_size();
  wanted.min_frequency = request->min_frequency();
  wanted.special_tokens.assign(request->special_tokens().begin(), request->special_tokens().end());
  wanted.split = request->split();
  wanted.on_progress = [&](const std::string& phase, int64_t done, int64_t total) {
    response.mutable_progress()->set_phase(phase);
    response.mutable_progress()->set_done(done);
    response.mutable_progress()->set_total(total);
    writer->Write(response);
  };
  wanted.cancelled = [context] { return context->IsCancelled(); };
  const absl::StatusOr<StoredBlob> tokenizer = trainer_->Train(wanted);
  if (!tokenizer.ok()) return ToGrpcStatus(tokenizer.status());
  *response.mutable_tokenizer() = ToProto(*tokenizer);
  writer->Write(response);
  return grpc::Status::OK;
}

grpc::Status TokenizerServiceImpl::GetTokenizer(grpc::ServerContext*,
                                                const v1::GetTokenizerRequest* request,
                                                v1::Tokenizer* response) {
  const auto get = [&]() -> absl::Status {
    MILLRACE_ASSIGN_OR_RETURN(const std::string id, ParseTokenizerName("name", request->name()));
    MILLRACE_ASSIGN_OR_RETURN(const StoredBlob tokenizer, store_->Get(id));
    *response = ToProto(tokenizer);
    return absl::OkStatus();
  };
  return ToGrpcStatus(get());
}

grpc::Status TokenizerServiceImpl::ListTokenizers(grpc::ServerContext*,
                                                  const v1::ListTokenizersRequest* request,
                                                  v1::ListTokenizersResponse* response) {
  const auto list = [&]() -> absl::Status {
    MILLRACE_ASSIGN_OR_RETURN(const int page_size, PageSize(request->page_size()));
    MILLRACE_ASSIGN_OR_RETURN(const std::string after,
                              DecodePageToken(request->page_token(), "tokenizers"));
    // One more than asked for tells whether there is a next page.
    std::vector<StoredBlob> tokenizers = store_->List(after, page_size + 1);
    if (static_cast<int>(tokenizers.size()) > page_size) {
      tokenizers.pop_back();
      response->set_next_page_token(EncodePageToken(tokenizers.back().id, "tokenizers"));
    }
    for (const StoredBlob& tokenizer : tokenizers) {
      *response->add_tokenizers() = ToProto(tokenizer);
    }
    return absl::OkStatus();
  };
  return ToGrpcStatus(list());
}

grpc::Status TokenizerServiceImpl::DownloadTokenizer(
    grpc::ServerContext*, const v1::DownloadTokenizerRequest* request,
    grpc::ServerWriter<v1::DownloadTokenizerResponse>* writer) {
  const auto send = [&]() -> absl::Status {
    MILLRACE_ASSIGN_OR_RETURN(const std::string id, ParseTokenizerName("name", request->name()));
    MILLRACE_RETURN_IF_ERROR(store_->Get(id).status());
    MILLRACE_ASSIGN_OR_RETURN(const std::string content,
                              ReadFile(absl::StrCat(store_->FilesFolder(id), "/", kTokenizerFile)));
    v1::DownloadTokenizerResponse response;
    for (size_t begin = 0; begin < content.size(); begin += kChunkBytes) {
      response.set_data(content.substr(begin, kChunkBytes));
      if (!writer->Write(response)) break;
    }
    return absl::OkStatus();
  };
  return ToGrpcStatus(send());
}

grpc::Status TokenizerServiceImpl::DeleteTokenizer(grpc::ServerContext*,
                                                   const v1::DeleteTokenizerRequest* request,
                                                   google::protobuf::Empty*) {
  const absl::StatusOr<std::string> id = ParseTokenizerName("name", request->name());
  return ToGrpcStatus(id.ok() ? store_->Delete(*id) : id.status());
}

}  // namespace millrace
