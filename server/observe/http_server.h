// GET /metrics for Prometheus and GET /healthz for whoever restarts daemons, on a port of their
// own.
#ifndef MILLRACE_SERVER_OBSERVE_HTTP_SERVER_H_
#define MILLRACE_SERVER_OBSERVE_HTTP_SERVER_H_

#include <atomic>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/observe/metrics.h"

struct mg_context;
struct mg_connection;

namespace millrace {

class HttpServer {
 public:
  // `listen` is host:port; port 0 is any free one. `metrics` outlives the server. UNAVAILABLE names
  // the address and why it cannot be had.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& listen,
                                                           Metrics* metrics);
  ~HttpServer();

  // As bound.
  const std::string& address() const { return address_; }

  // /healthz answers 200 `ok` while serving, else 503 `draining`. Serving from the start.
  void SetServing(bool serving) { serving_ = serving; }

 private:
  explicit HttpServer(Metrics* metrics) : metrics_(metrics) {}
  static int HandleMetrics(mg_connection* connection, void* self);
  static int HandleHealth(mg_connection* connection, void* self);
  static int HandleOther(mg_connection* connection, void* self);

  Metrics* const metrics_;
  std::atomic<bool> serving_ = true;
  std::string address_;
  mg_context* context_ = nullptr;
};

}  // namespace millrace

#endif  // MILLRACE_SERVER_OBSERVE_HTTP_SERVER_H_
