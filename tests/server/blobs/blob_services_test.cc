// DatasetService and CheckpointService through a real server on the loopback interface.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/base/file.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "server/base/errors.h"
#include "server/blobs/dataset_store.h"
#include "server/observe/metrics.h"
#include "server/rpc/checkpoint_service.h"
#include "server/rpc/dataset_service.h"
#include "tests/server/blobs/fake_checkpoint.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

std::string Hash(const std::string& content) {
  Sha256 hash;
  hash.Update(content);
  return hash.Finish();
}

// The ErrorInfo that came with a status.
google::rpc::ErrorInfo InfoOf(const grpc::Status& status) {
  google::rpc::Status details;
  google::rpc::ErrorInfo info;
  details.ParseFromString(status.error_details());
  for (const auto& detail : details.details()) {
    if (detail.UnpackTo(&info)) break;
  }
  return info;
}

class BlobServicesTest : public ::testing::Test {
 protected:
  BlobServicesTest() : paths_(MakeFolder()), checkpoints_(paths_) {
    store_ = *OpenDatasets({.folder = paths_.Datasets()});
    dataset_service_ = std::make_unique<DatasetServiceImpl>(store_.get(), &metrics_);
    checkpoint_service_ = std::make_unique<CheckpointServiceImpl>(
        &checkpoints_, &exporter_, &metrics_, [](const std::string& id) {
          return id == "one" ? absl::OkStatus()
                             : MakeError(ErrorReason::kJobNotFound, "no such job");
        });
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(dataset_service_.get());
    builder.RegisterService(checkpoint_service_.get());
    server_ = builder.BuildAndStart();
    auto channel =
        grpc::CreateChannel(absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials());
    datasets_stub_ = v1::DatasetService::NewStub(channel);
    checkpoints_stub_ = v1::CheckpointService::NewStub(channel);
  }

  static std::string MakeFolder() {
    std::string pattern = absl::StrCat(getenv("TEST_TMPDIR"), "/data-XXXXXX");
    return mkdtemp(pattern.data());
  }

  grpc::Status Create(const std::string& id, const std::string& path, const std::string& content) {
    v1::CreateDatasetRequest request;
    request.set_dataset_id(id);
    v1::DatasetFile* file = request.mutable_dataset()->add_files();
    file->set_path(path);
    file->set_size_bytes(static_cast<int64_t>(content.size()));
    file->set_sha256(Hash(content));
    grpc::ClientContext context;
    v1::Dataset dataset;
    return datasets_stub_->CreateDataset(&context, request, &dataset);
  }

  // Sends `bytes` in two pieces.
  grpc::Status Upload(const std::string& id, const std::string& path, int64_t offset,
                      const std::string& bytes, int64_t* committed) {
    grpc::ClientContext context;
    v1::UploadDatasetFileResponse response;
    auto writer = datasets_stub_->UploadDatasetFile(&context, &response);
    v1::UploadDatasetFileRequest request;
    request.mutable_header()->set_name("datasets/" + id);
    request.mutable_header()->set_path(path);
    request.mutable_header()->set_offset(offset);
    writer->Write(request);
    for (const std::string& piece : {bytes.substr(0, 3), bytes.substr(3)}) {
      request.set_data(piece);
      writer->Write(request);
    }
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    *committed = response.committed_bytes();
    return status;
  }

  DataPaths paths_;
  std::unique_ptr<BlobStore> store_;
  CheckpointStore checkpoints_;
  CheckpointExporter exporter_{{.worker_program = "/bin/false", .checkpoints = &checkpoints_}};
  Metrics metrics_;
  std::unique_ptr<DatasetServiceImpl> dataset_service_;
  std::unique_ptr<CheckpointServiceImpl> checkpoint_service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::DatasetService::Stub> datasets_stub_;
  std::unique_ptr<v1::CheckpointService::Stub> checkpoints_stub_;
};

TEST_F(BlobServicesTest, UploadsResumeAndEndReady) {
  const std::string content = "Now is the winter of our discontent";
  ASSERT_TRUE(Create("plays", "richard.txt", content).ok());
  int64_t committed = 0;
  ASSERT_TRUE(Upload("plays", "richard.txt", 0, content.substr(0, 10), &committed).ok());
  EXPECT_EQ(committed, 10);

  grpc::Status status = Upload("plays", "richard.txt", 3, content.substr(3), &committed);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(InfoOf(status).reason(), "OFFSET_MISMATCH");
  EXPECT_EQ(InfoOf(status).metadata().at("committed_bytes"), "10");

  ASSERT_TRUE(Upload("plays", "richard.txt", 10, content.substr(10), &committed).ok());
  EXPECT_EQ(committed, static_cast<int64_t>(content.size()));

  v1::FinalizeDatasetRequest request;
  request.set_name("datasets/plays");
  grpc::ClientContext context;
  v1::Dataset dataset;
  ASSERT_TRUE(datasets_stub_->FinalizeDataset(&context, request, &dataset).ok());
  EXPECT_EQ(dataset.state(), v1::Dataset::READY);
  EXPECT_EQ(dataset.name(), "datasets/plays");
  EXPECT_EQ(dataset.document_count(), 1);
  EXPECT_THAT(metrics_.Serialize(),
              HasSubstr(absl::StrCat(
                  "millrace_transfer_bytes_total{direction=\"receive\",kind=\"dataset\"} ",
                  content.size())));
}

TEST_F(BlobServicesTest, OneUploadTooManyIsToldToComeAgain) {
  ASSERT_TRUE(Create("plays", "a.txt", "hello").ok());
  struct OpenUpload {
    grpc::ClientContext context;
    v1::UploadDatasetFileResponse response;
    std::unique_ptr<grpc::ClientWriter<v1::UploadDatasetFileRequest>> writer;
  };
  const auto begin = [&] {
    auto upload = std::make_unique<OpenUpload>();
    upload->writer = datasets_stub_->UploadDatasetFile(&upload->context, &upload->response);
    v1::UploadDatasetFileRequest request;
    request.mutable_header()->set_name("datasets/plays");
    request.mutable_header()->set_path("a.txt");
    upload->writer->Write(request);
    return upload;
  };
  const auto end = [](OpenUpload& upload) {
    upload.writer->WritesDone();
    return upload.writer->Finish();
  };
  std::vector<std::unique_ptr<OpenUpload>> uploads;
  for (int i = 0; i < DatasetServiceImpl::kMostUploads; ++i) uploads.push_back(begin());
  // Until the server has begun them all there is room for this one.
  grpc::Status status;
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  while (status.ok() && absl::Now() < deadline) status = end(*begin());
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(InfoOf(status).reason(), "BUSY");
  for (auto& upload : uploads) end(*upload);
  int64_t committed = 0;
  EXPECT_TRUE(Upload("plays", "a.txt", 0, "hello", &committed).ok()) << "there is room again";
}

TEST_F(BlobServicesTest, KeepsWhatCameBeforeABrokenConnection) {
  const std::string content = "Now is the winter";
  ASSERT_TRUE(Create("plays", "a.txt", content).ok());
  {
    grpc::ClientContext context;
    v1::UploadDatasetFileResponse response;
    auto writer = datasets_stub_->UploadDatasetFile(&context, &response);
    v1::UploadDatasetFileRequest request;
    request.mutable_header()->set_name("datasets/plays");
    request.mutable_header()->set_path("a.txt");
    writer->Write(request);
    request.set_data(content.substr(0, 5));
    writer->Write(request);
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    while (store_->Get("plays")->files[0].committed_bytes < 5 && absl::Now() < deadline) {
      absl::SleepFor(absl::Milliseconds(1));
    }
    context.TryCancel();
    writer->Finish();
  }
  int64_t committed = 0;
  EXPECT_TRUE(Upload("plays", "a.txt", 5, content.substr(5), &committed).ok());
}

TEST_F(BlobServicesTest, DatasetErrorsCarryTheirReason) {
  EXPECT_EQ(InfoOf(Create("plays", "../a", "x")).reason(), "DATASET_INVALID");
  ASSERT_TRUE(Create("plays", "a.txt", "hello").ok());
  int64_t committed = 0;
  grpc::Status status = Upload("plays", "a.txt", 0, "hellO", &committed);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DATA_LOSS);
  EXPECT_EQ(InfoOf(status).reason(), "CHECKSUM_MISMATCH");
  EXPECT_EQ(InfoOf(Upload("other", "a.txt", 0, "hello", &committed)).reason(), "DATASET_NOT_FOUND");

  v1::GetDatasetRequest request;
  request.set_name("plays");
  grpc::ClientContext context;
  v1::Dataset dataset;
  status = datasets_stub_->GetDataset(&context, request, &dataset);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(BlobServicesTest, DatasetsAreListedInPages) {
  for (const char* id : {"a", "b", "c"}) ASSERT_TRUE(Create(id, "f", "x").ok());
  std::string seen;
  v1::ListDatasetsRequest request;
  request.set_page_size(2);
  do {
    grpc::ClientContext context;
    v1::ListDatasetsResponse response;
    ASSERT_TRUE(datasets_stub_->ListDatasets(&context, request, &response).ok());
    for (const v1::Dataset& dataset : response.datasets()) {
      seen += dataset.name() + " ";
      EXPECT_EQ(dataset.files_size(), 0);
      EXPECT_EQ(dataset.size_bytes(), 1);
    }
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  EXPECT_EQ(seen, "datasets/a datasets/b datasets/c ");
  request.set_page_size(-1);
  grpc::ClientContext context;
  v1::ListDatasetsResponse response;
  EXPECT_EQ(datasets_stub_->ListDatasets(&context, request, &response).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(BlobServicesTest, CheckpointsAreListedInPagesNewestFirst) {
  for (const int step : {100, 200, 300}) {
    WriteFakeCheckpoint(paths_.Checkpoints("one"), step, 1.0, {{"config.json", "{}"}});
  }
  v1::ListCheckpointsRequest request;
  request.set_parent("jobs/one");
  request.set_page_size(2);
  std::string seen;
  do {
    grpc::ClientContext context;
    v1::ListCheckpointsResponse response;
    ASSERT_TRUE(checkpoints_stub_->ListCheckpoints(&context, request, &response).ok());
    for (const v1::Checkpoint& checkpoint : response.checkpoints()) seen += checkpoint.name() + " ";
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  EXPECT_EQ(seen, "jobs/one/checkpoints/300 jobs/one/checkpoints/200 jobs/one/checkpoints/100 ");
}

TEST_F(BlobServicesTest, DownloadsResumeAtAnOffset) {
  // More than one message.
  std::string content(3 << 20, 'a');
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>('a' + i % 23);
  WriteFakeCheckpoint(paths_.Checkpoints("one"), 100, 1.0, {{"model.safetensors", content}});
  for (const int64_t offset : {int64_t{0}, int64_t{1'500'000}, int64_t{3 << 20}}) {
    v1::DownloadCheckpointFileRequest request;
    request.set_name("jobs/one/checkpoints/latest");
    request.set_path("model.safetensors");
    request.set_offset(offset);
    grpc::ClientContext context;
    auto reader = checkpoints_stub_->DownloadCheckpointFile(&context, request);
    std::string got;
    v1::DownloadCheckpointFileResponse response;
    while (reader->Read(&response)) {
      EXPECT_LE(response.data().size(), size_t{1} << 20);
      got += response.data();
    }
    ASSERT_TRUE(reader->Finish().ok());
    EXPECT_TRUE(got == content.substr(offset)) << offset;
  }
}

TEST_F(BlobServicesTest, CheckpointErrorsCarryTheirReason) {
  const auto get = [&](const std::string& name) {
    v1::GetCheckpointRequest request;
    request.set_name(name);
    grpc::ClientContext context;
    v1::Checkpoint checkpoint;
    return checkpoints_stub_->GetCheckpoint(&context, request, &checkpoint);
  };
  EXPECT_EQ(InfoOf(get("jobs/two/checkpoints/1")).reason(), "JOB_NOT_FOUND");
  EXPECT_EQ(InfoOf(get("jobs/one/checkpoints/1")).reason(), "CHECKPOINT_NOT_FOUND");
  EXPECT_EQ(get("jobs/one").error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(get("jobs/../checkpoints/1").error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  WriteFakeCheckpoint(paths_.Checkpoints("one"), 7, 1.0, {{"config.json", "{}"}});
  EXPECT_THAT(get("jobs/one/checkpoints/1").error_message(), HasSubstr("7"));
  EXPECT_TRUE(get("jobs/one/checkpoints/best").ok());
}

}  // namespace
}  // namespace millrace
