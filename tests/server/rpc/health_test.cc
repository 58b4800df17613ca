// The health and reflection services, as generic clients see them.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <gtest/gtest.h>

#include "absl/synchronization/notification.h"
#include "tests/server/rpc/service_fixture.h"

namespace millrace {
namespace {

class HealthTest : public ServiceTest {
 protected:
  // The field `status` of grpc.health.v1.HealthCheckResponse: 1 SERVING, 2 NOT_SERVING.
  int Check() {
    grpc::GenericStub stub(channel_);
    grpc::ClientContext context;
    SetDeadline(&context);
    grpc::ByteBuffer request, response;
    absl::Notification done;
    grpc::Status status;
    const grpc::Slice empty;
    request = grpc::ByteBuffer(&empty, 1);
    stub.UnaryCall(&context, "/grpc.health.v1.Health/Check", {}, &request, &response,
                   [&](grpc::Status result) {
                     status = std::move(result);
                     done.Notify();
                   });
    done.WaitForNotification();
    EXPECT_TRUE(status.ok()) << status.error_message();
    grpc::Slice slice;
    if (!response.DumpToSingleSlice(&slice).ok() || slice.size() != 2) return -1;
    // A message of one field: key, value.
    return slice.begin()[1];
  }
};

TEST_F(HealthTest, ServesUntilItDrains) {
  EXPECT_EQ(Check(), 1);
  server_->SetServing(false);
  EXPECT_EQ(Check(), 2);
}

}  // namespace
}  // namespace millrace
