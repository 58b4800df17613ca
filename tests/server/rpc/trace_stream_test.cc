#include "server/rpc/trace_stream.h"

#include <gtest/gtest.h>

#include <fstream>

#include "absl/strings/match.h"
#include "tests/server/rpc/service_fixture.h"

namespace millrace {
namespace {

class TraceStreamTest : public ServiceTest {
 protected:
  struct Answer {
    grpc::Status status;
    // The first message, without its data.
    v1::ReadTraceResponse head;
    std::string data;
  };

  void WriteTrace(const std::string& id, const std::string& name, const std::string& content) {
    std::filesystem::create_directories(options_.paths.Traces(id));
    std::ofstream(options_.paths.Traces(id) + "/" + name) << content;
  }

  Answer Read(const std::string& id, int64_t first_step = 0, int64_t offset = 0) {
    grpc::ClientContext context;
    SetDeadline(&context);
    v1::ReadTraceRequest request;
    request.set_name("jobs/" + id);
    request.set_first_step(first_step);
    request.set_offset(offset);
    auto reader = jobs_->ReadTrace(&context, request);
    Answer answer;
    v1::ReadTraceResponse response;
    while (reader->Read(&response)) {
      answer.data += response.data();
      if (response.first_step() > 0) answer.head = response;
    }
    answer.status = reader->Finish();
    return answer;
  }
};

TEST_F(TraceStreamTest, ReadsTheLastTraceOrTheOneThatIsNamed) {
  CreateRunningJob("a");
  const std::string large(700'000, 'x');
  WriteTrace("a", "steps-2-3.json", "{}");
  WriteTrace("a", "steps-10-12.json", large);
  WriteTrace("a", "steps-99-100.json.tmp", "half");
  const Answer last = Read("a");
  EXPECT_TRUE(last.status.ok()) << last.status.error_message();
  EXPECT_EQ(last.head.first_step(), 10);
  EXPECT_EQ(last.head.last_step(), 12);
  EXPECT_EQ(last.head.size_bytes(), 700'000);
  EXPECT_TRUE(last.data == large);
  EXPECT_EQ(Read("a", 2).data, "{}");
}

TEST_F(TraceStreamTest, GoesOnAtAnOffset) {
  CreateRunningJob("a");
  WriteTrace("a", "steps-2-3.json", "0123456789");
  EXPECT_EQ(Read("a", 0, 6).data, "6789");
  const Answer end = Read("a", 0, 10);
  EXPECT_TRUE(end.status.ok());
  EXPECT_EQ(end.data, "");
  EXPECT_EQ(end.head.size_bytes(), 10);
  EXPECT_EQ(ReasonOfGrpc(Read("a", 0, 11).status), "OFFSET_OUT_OF_RANGE");
}

TEST_F(TraceStreamTest, NamesTheTracesThereAre) {
  CreateRunningJob("a");
  EXPECT_EQ(ReasonOfGrpc(Read("a").status), "TRACE_NOT_FOUND");
  WriteTrace("a", "steps-2-3.json", "{}");
  const grpc::Status status = Read("a", 7).status;
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_TRUE(absl::StrContains(status.error_message(), "those of steps 2 to 3"));
  EXPECT_EQ(ReasonOfGrpc(Read("a", -1).status), "REQUEST_INVALID");
  EXPECT_EQ(ReasonOfGrpc(Read("nobody").status), "JOB_NOT_FOUND");
}

}  // namespace
}  // namespace millrace
