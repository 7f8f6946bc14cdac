// Serves one text to Prometheus: GET /metrics, and nothing else.
//
// Debian's cpp-httplib 0.11 would bring OpenSSL and Brotli into the program, has its limits
// compiled in, takes a body with any request, and shares a port (SO_REUSEPORT) that another program
// has.
#pragma once

#include <memory>
#include <string>

namespace ridge::attach {

class PrometheusServer {
 public:
  /// Takes the port (0: any that is free). Nobody is answered before serve(). UserError where the
  /// address is none of this machine's, or the port is in use or needs rights.
  PrometheusServer(const std::string& address, int port);
  PrometheusServer(const PrometheusServer&) = delete;
  PrometheusServer& operator=(const PrometheusServer&) = delete;
  ~PrometheusServer();

  int port() const;
  /// Starts the thread that answers. It takes no signals.
  void serve();
  /// Answers with `text` from now on.
  void publish(std::string text);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// How much a client may send, how many may wait, and for how long.
inline constexpr size_t kMostRequestBytes = 8192;
inline constexpr size_t kMostClients = 16;
inline constexpr int kClientSeconds = 5;

}  // namespace ridge::attach
