// TokenizerService over the store of tokenizers and their trainer.
#ifndef MILLRACE_SERVER_RPC_TOKENIZER_SERVICE_H_
#define MILLRACE_SERVER_RPC_TOKENIZER_SERVICE_H_

#include "millrace/v1/tokenizer_service.grpc.pb.h"
#include "server/blobs/blob_store.h"
#include "server/worker/tokenizer_trainer.h"

namespace millrace {

// A training takes a thread as long as it lasts; there is one at a time.
class TokenizerServiceImpl final : public v1::TokenizerService::Service {
 public:
  // Both outlive this.
  TokenizerServiceImpl(BlobStore* store, TokenizerTrainer* trainer)
      : store_(store), trainer_(trainer) {}

  grpc::Status TrainTokenizer(grpc::ServerContext* context,
                              const v1::TrainTokenizerRequest* request,
                              grpc::ServerWriter<v1::TrainTokenizerResponse>* writer) override;
  grpc::Status GetTokenizer(grpc::ServerContext* context, const v1::GetTokenizerRequest* request,
                            v1::Tokenizer* response) override;
  grpc::Status ListTokenizers(grpc::ServerContext* context,
                              const v1::ListTokenizersRequest* request,
                              v1::ListTokenizersResponse* response) override;
  grpc::Status DownloadTokenizer(
      grpc::ServerContext* context, const v1::DownloadTokenizerRequest* request,
      grpc::ServerWriter<v1::DownloadTokenizerResponse>* writer) override;
  grpc::Status DeleteTokenizer(grpc::ServerContext* context,
                               const v1::DeleteTokenizerRequest* request,
                               google::protobuf::Empty* response) override;

 private:
  BlobStore* const store_;
  TokenizerTrainer* const trainer_;
};

}  // namespace millrace

#endif  // MILLRACE_SERVER_RPC_TOKENIZER_SERVICE_H_
