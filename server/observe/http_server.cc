#include "server/observe/http_server.h"

#include <civetweb.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/base/listen_address.h"

namespace millrace {
namespace {

constexpr char kPlain[] = "text/plain; charset=utf-8";

int Answer(mg_connection* connection, int code, const char* reason, const char* type,
           const std::string& body) {
  const bool with_body = std::strcmp(mg_get_request_info(connection)->request_method, "HEAD") != 0;
  mg_printf(connection,
            "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
            "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\r\n",
            code, reason, type, body.size());
  if (with_body) mg_write(connection, body.data(), body.size());
  return code;
}

bool IsRead(mg_connection* connection) {
  const char* method = mg_get_request_info(connection)->request_method;
  return std::strcmp(method, "GET") == 0 || std::strcmp(method, "HEAD") == 0;
}

int RefuseMethod(mg_connection* connection) {
  return Answer(connection, 405, "Method Not Allowed", kPlain, "only GET and HEAD are served\n");
}

// It would print to standard error of its own accord; errors are told by what Start() returns.
int KeepQuiet(const mg_connection* connection, const char* message) { return 1; }

// Connects and hangs up.
void Connect(const HostAndPort& remote) {
  char error[128];
  mg_connection* connection =
      mg_connect_client(remote.host.c_str(), remote.port, /*use_ssl=*/0, error, sizeof(error));
  if (connection != nullptr) mg_close_connection(connection);
}

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const std::string& listen,
                                                              Metrics* metrics) {
  std::unique_ptr<HttpServer> server(new HttpServer(metrics));
  const HostAndPort parts = SplitAddress(listen);
  std::string host = parts.host == "localhost" ? "127.0.0.1" : parts.host;
  if (absl::StrContains(host, ':')) host = absl::StrCat("[", host, "]");
  const std::string port = absl::StrCat(host, ":", parts.port);
  const char* options[] = {"listening_ports",    port.c_str(), "num_threads", "2",
                           "request_timeout_ms", "10000",      nullptr};
  mg_callbacks callbacks;
  std::memset(&callbacks, 0, sizeof(callbacks));
  callbacks.log_message = &KeepQuiet;
  server->context_ = mg_start(&callbacks, server.get(), options);
  mg_server_port bound;
  if (server->context_ == nullptr || mg_get_server_ports(server->context_, 1, &bound) < 1) {
    return CannotListen("http_listen", listen);
  }
  server->address_ = WithPort(listen, bound.port);
  mg_set_request_handler(server->context_, "/metrics$", &HttpServer::HandleMetrics, server.get());
  mg_set_request_handler(server->context_, "/healthz$", &HttpServer::HandleHealth, server.get());
  mg_set_request_handler(server->context_, "/", &HttpServer::HandleOther, server.get());
  return server;
}

HttpServer::~HttpServer() {
  if (context_ == nullptr) return;
  // CivetWeb looks whether it is to stop only when somebody connects, or every two seconds.
  std::atomic<bool> stopped = false;
  std::thread stopper([&] {
    mg_stop(context_);
    stopped = true;
  });
  while (!stopped) {
    Connect(SplitAddress(address_));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  stopper.join();
}

int HttpServer::HandleMetrics(mg_connection* connection, void* self) {
  if (!IsRead(connection)) return RefuseMethod(connection);
  return Answer(connection, 200, "OK", "text/plain; version=0.0.4; charset=utf-8",
                static_cast<HttpServer*>(self)->metrics_->Serialize());
}

int HttpServer::HandleHealth(mg_connection* connection, void* self) {
  if (!IsRead(connection)) return RefuseMethod(connection);
  if (!static_cast<HttpServer*>(self)->serving_) {
    return Answer(connection, 503, "Service Unavailable", kPlain, "draining\n");
  }
  return Answer(connection, 200, "OK", kPlain, "ok\n");
}

int HttpServer::HandleOther(mg_connection* connection, void* self) {
  return Answer(connection, 404, "Not Found", kPlain, "only /metrics and /healthz are here\n");
}

}  // namespace millrace
