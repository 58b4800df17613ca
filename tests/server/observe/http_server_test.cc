#include "server/observe/http_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/base/listen_address.h"

namespace millrace {
namespace {

// The whole answer to one request.
std::string Request(const std::string& address, const std::string& method,
                    const std::string& path) {
  const HostAndPort parts = SplitAddress(address);
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in remote = {};
  remote.sin_family = AF_INET;
  remote.sin_port = htons(static_cast<uint16_t>(parts.port));
  inet_pton(AF_INET, parts.host.c_str(), &remote.sin_addr);
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&remote), sizeof(remote)), 0);
  const std::string request =
      absl::StrCat(method, " ", path, " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(write(fd, request.data(), request.size()), static_cast<ssize_t>(request.size()));
  std::string answer;
  char buffer[4096];
  ssize_t count;
  while ((count = read(fd, buffer, sizeof(buffer))) > 0) {
    answer.append(buffer, static_cast<size_t>(count));
  }
  close(fd);
  return answer;
}

class HttpServerTest : public testing::Test {
 protected:
  void SetUp() override {
    auto server = HttpServer::Start("127.0.0.1:0", &metrics_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  Metrics metrics_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, ServesMetrics) {
  metrics_.Set(metric::kBuildInfo, {"1.2.3"}, 1);
  const std::string answer = Request(server_->address(), "GET", "/metrics");
  EXPECT_TRUE(absl::StartsWith(answer, "HTTP/1.1 200 OK\r\n")) << answer;
  EXPECT_TRUE(absl::StrContains(answer, "text/plain; version=0.0.4"));
  EXPECT_TRUE(absl::StrContains(answer, "\nmillrace_build_info{version=\"1.2.3\"} 1\n"));
}

TEST_F(HttpServerTest, HealthTurnsWhenDraining) {
  EXPECT_TRUE(absl::StartsWith(Request(server_->address(), "GET", "/healthz"), "HTTP/1.1 200"));
  server_->SetServing(false);
  EXPECT_TRUE(absl::StartsWith(Request(server_->address(), "GET", "/healthz"), "HTTP/1.1 503"));
}

TEST_F(HttpServerTest, NothingElseIsServed) {
  EXPECT_TRUE(absl::StartsWith(Request(server_->address(), "GET", "/"), "HTTP/1.1 404"));
  EXPECT_TRUE(absl::StartsWith(Request(server_->address(), "GET", "/metrics/x"), "HTTP/1.1 404"));
  EXPECT_TRUE(absl::StartsWith(Request(server_->address(), "POST", "/metrics"), "HTTP/1.1 405"));
}

TEST_F(HttpServerTest, PortInUseIsTold) {
  const auto second = HttpServer::Start(server_->address(), &metrics_);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(absl::StrContains(second.status().message(), "address in use"));
}

}  // namespace
}  // namespace millrace
