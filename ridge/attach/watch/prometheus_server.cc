#include "ridge/attach/watch/prometheus_server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "ridge/base/clock.h"
#include "ridge/base/descriptor.h"
#include "ridge/base/error.h"

namespace ridge::attach {
namespace {

constexpr int64_t kClientNs = int64_t{kClientSeconds} * 1'000'000'000;

enum class Phase { kReading, kWriting, kDraining };

struct Client {
  Descriptor socket;
  int64_t until_ns;
  Phase phase = Phase::kReading;
  std::string request{}, answer{};
  size_t sent = 0;
  bool is_ready = false;  ///< The system says that something can be read or written.
};

std::string answer_of(std::string_view status,
                      std::string_view body,
                      std::string_view type = "text/plain; charset=utf-8") {
  return fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nAllow: GET\r\n"
      "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n{}",
      status,
      type,
      body.size(),
      body);
}

// `head` is the request up to the empty line. Its header fields change nothing.
std::string answer_to(std::string_view head, std::string_view text) {
  const std::string_view line = head.substr(0, head.find_first_of("\r\n"));
  const size_t method = line.find(' ');
  const size_t target = method == line.npos ? line.npos : line.find(' ', method + 1);
  if (target == line.npos || !line.substr(target + 1).starts_with("HTTP/1."))
    return answer_of("400 Bad Request", "this is no HTTP/1 request\n");
  if (line.substr(0, method) != "GET")
    return answer_of("405 Method Not Allowed", "only GET is answered\n");
  std::string_view path = line.substr(method + 1, target - method - 1);
  path = path.substr(0, path.find('?'));
  if (path != "/metrics") return answer_of("404 Not Found", "there is only /metrics\n");
  return answer_of("200 OK", text, "text/plain; version=0.0.4; charset=utf-8");
}

// Returns the end of the request's head; npos while it has not arrived.
size_t end_of_head(std::string_view request) {
  return std::min(request.find("\r\n\r\n"), request.find("\n\n"));
}

Descriptor listen_at(const std::string& address, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int failed =
      ::getaddrinfo(address.c_str(), fmt::format("{}", port).c_str(), &hints, &found);
  if (failed != 0)
    throw UserError(fmt::format("cannot listen at '{}': {}", address, ::gai_strerror(failed)),
                    "give an address of this machine, such as 127.0.0.1, or 0.0.0.0 for all");
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  constexpr int kFlags = SOCK_NONBLOCK | SOCK_CLOEXEC;
  Descriptor socket(::socket(found->ai_family, found->ai_socktype | kFlags, found->ai_protocol));
  const int yes = 1;  // a port that was ours a minute ago may be so again
  if (socket.get() >= 0) ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (socket.get() >= 0 && ::bind(socket.get(), found->ai_addr, found->ai_addrlen) == 0 &&
      ::listen(socket.get(), kMostClients) == 0)
    return socket;
  const int code = errno;
  throw UserError(
      fmt::format("cannot listen at {} port {}: {}", address, port, std::strerror(code)),
      code == EADDRINUSE ? "another program has this port: choose another"
      : code == EACCES   ? "choose a port above 1023"
                         : "give an address of this machine, such as 127.0.0.1");
}

int port_of(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  check_internal(::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0,
                 "a listening socket has no name: {}",
                 std::strerror(errno));
  char service[8] = {};
  ::getnameinfo(reinterpret_cast<sockaddr*>(&address),
                size,
                nullptr,
                0,
                service,
                sizeof service,
                NI_NUMERICSERV);
  return std::atoi(service);
}

}  // namespace

struct PrometheusServer::State {
  Descriptor listener, wake;
  std::mutex mutex;
  std::string text;
  std::vector<Client> clients;
  std::thread thread;

  void run();
  void accept_clients(int64_t now);
  bool advance(Client& client);
  void read_request(Client& client);
  int wait_ms(int64_t now) const;
};

// Reads until the head is whole; what follows it (a body) is not waited for.
void PrometheusServer::State::read_request(Client& client) {
  char buffer[2048];
  for (;;) {
    const ssize_t size = ::recv(client.socket.get(), buffer, sizeof buffer, 0);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    client.request.append(buffer, static_cast<size_t>(std::max<ssize_t>(size, 0)));
    const size_t end = end_of_head(client.request);
    if (end != client.request.npos && end < kMostRequestBytes) {
      const std::lock_guard lock(mutex);
      client.answer = answer_to(std::string_view(client.request).substr(0, end), text);
    } else if (client.request.size() >= kMostRequestBytes) {
      client.answer = answer_of("431 Request Header Fields Too Large", "too much was sent\n");
    } else if (size > 0) {
      continue;
    }
    client.phase = Phase::kWriting;  // with nothing to write where it hung up
    client.request.clear();
    return;
  }
}

// False when all is done with it.
bool PrometheusServer::State::advance(Client& client) {
  const int socket = client.socket.get();
  if (client.phase == Phase::kReading) read_request(client);
  if (client.phase == Phase::kWriting) {
    while (client.sent < client.answer.size()) {
      const ssize_t size = ::send(socket,
                                  client.answer.data() + client.sent,
                                  client.answer.size() - client.sent,
                                  MSG_NOSIGNAL);
      if (size < 0 && errno == EINTR) continue;
      if (size < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
      client.sent += static_cast<size_t>(size);
    }
    if (client.answer.empty()) return false;
    // Closing with something unread would take the answer back that is on its way.
    ::shutdown(socket, SHUT_WR);
    client.phase = Phase::kDraining;
  }
  if (client.phase != Phase::kDraining) return true;
  char buffer[2048];
  constexpr int kMostPieces = 64;  // who sends on and on is cut off when the time is up
  for (int i = 0; i < kMostPieces; ++i) {
    const ssize_t size = ::recv(socket, buffer, sizeof buffer, 0);
    if (size == 0) return false;
    if (size < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
  }
  return true;
}

void PrometheusServer::State::accept_clients(int64_t now) {
  while (clients.size() < kMostClients) {
    Descriptor socket(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.get() < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM))
      ::poll(nullptr, 0, 100);  // it would be ready again at once, and take a whole processor
    if (socket.get() < 0) return;
    clients.push_back({.socket = std::move(socket), .until_ns = now + kClientNs});
  }
}

int PrometheusServer::State::wait_ms(int64_t now) const {
  int64_t until = now + 3'600'000'000'000;
  for (const Client& client : clients) until = std::min(until, client.until_ns);
  return static_cast<int>(std::max<int64_t>(0, until - now) / 1'000'000 + 1);
}

void PrometheusServer::State::run() {
  std::vector<pollfd> polled;
  for (;;) {
    polled.assign({{wake.get(), POLLIN, 0}});
    // While there are too many, the others wait in the system's queue.
    const bool has_room = clients.size() < kMostClients;
    polled.push_back({has_room ? listener.get() : -1, POLLIN, 0});
    for (const Client& client : clients) {
      const short events = client.phase == Phase::kWriting ? POLLOUT : POLLIN;
      polled.push_back({client.socket.get(), events, 0});
    }
    ::poll(polled.data(), polled.size(), wait_ms(now_ns()));
    if (polled[0].revents != 0) return;
    const int64_t now = now_ns();
    for (size_t i = 0; i < clients.size(); ++i) clients[i].is_ready = polled[i + 2].revents != 0;
    std::erase_if(clients, [&](Client& client) {
      return now >= client.until_ns || (client.is_ready && !advance(client));
    });
    if (polled[1].revents != 0) accept_clients(now);
  }
}

PrometheusServer::PrometheusServer(const std::string& address, int port)
    : state_(std::make_unique<State>()) {
  state_->listener = listen_at(address, port);
  state_->wake = Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  check(state_->wake.get() >= 0, "cannot make an event descriptor: {}", std::strerror(errno));
}

PrometheusServer::~PrometheusServer() {
  if (!state_->thread.joinable()) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(state_->wake.get(), &one, sizeof one);
  state_->thread.join();
}

int PrometheusServer::port() const { return port_of(state_->listener.get()); }

void PrometheusServer::serve() {
  if (state_->thread.joinable()) return;
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  state_->thread = std::thread([state = state_.get()] { state->run(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void PrometheusServer::publish(std::string text) {
  const std::lock_guard lock(state_->mutex);
  state_->text = std::move(text);
}

}  // namespace ridge::attach
