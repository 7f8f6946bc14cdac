#include "ridge/attach/kineto/kineto_socket.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "ridge/attach/kineto/kineto_messages.h"
#include "ridge/base/error.h"

namespace ridge::attach {
namespace {

struct Address {
  sockaddr_un name{};
  socklen_t bytes = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&name); }
};

// An abstract name begins with a NUL; in both forms a NUL ends it, and counts.
Address address_of(const std::string& text) {
  Address address;
  address.name.sun_family = AF_UNIX;
  check(text.size() < sizeof(address.name.sun_path),
        "'{}' is too long for a socket: {} bytes, at most {}; let KINETO_IPC_SOCKET_DIR name a "
        "shorter path",
        text,
        text.size(),
        sizeof(address.name.sun_path) - 1);
  std::memcpy(address.name.sun_path, text.data(), text.size());
  address.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + text.size() + 1);
  return address;
}

// Whether nobody listens at a path: a daemon that was killed leaves it behind. Asked by another
// socket, for one that takes credentials is given a name when it connects.
bool is_abandoned(const Address& address) {
  const int probe = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (probe < 0) return false;
  const bool is_refused =
      ::connect(probe, address.get(), address.bytes) != 0 && errno == ECONNREFUSED;
  ::close(probe);
  return is_refused;
}

[[noreturn]] void fail_taken() {
  throw UserError(
      "another program answers libkineto here: dynolog, or another `ridge doctor --pid`",
      "stop it or wait for it; dynolog can write the trace itself: dyno gputrace --pids PID "
      "--log-file /tmp/trace.json, then ridge doctor /tmp/trace_PID.json");
}

}  // namespace

KinetoSocket::KinetoSocket(const std::string& name, const std::string& folder)
    : socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)),
      buffer_(kLongestKinetoMessage) {
  if (socket_ < 0) throw UserError(fmt::format("no socket: {}", std::strerror(errno)));
  try {
    const int on = 1;
    ::setsockopt(socket_, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
    bind_to(name, folder);
  } catch (...) {
    ::close(socket_);
    throw;
  }
}

void KinetoSocket::bind_to(const std::string& name, const std::string& folder) {
  const std::string text = folder.empty() ? std::string(1, '\0') + name : folder + "/" + name;
  const Address address = address_of(text);
  int failed = ::bind(socket_, address.get(), address.bytes) == 0 ? 0 : errno;
  if (failed == EADDRINUSE && !folder.empty() && is_abandoned(address)) {
    ::unlink(text.c_str());
    failed = ::bind(socket_, address.get(), address.bytes) == 0 ? 0 : errno;
  }
  if (failed == EADDRINUSE) fail_taken();
  if (failed != 0)
    throw UserError(fmt::format(
        "cannot listen at '{}': {}", folder.empty() ? "@" + name : text, std::strerror(failed)));
  if (!folder.empty()) path_ = text;
}

KinetoSocket::~KinetoSocket() {
  ::close(socket_);
  if (!path_.empty()) ::unlink(path_.c_str());
}

bool KinetoSocket::receive(int milliseconds, Letter& letter) {
  pollfd wanted{.fd = socket_, .events = POLLIN, .revents = 0};
  if (::poll(&wanted, 1, milliseconds) <= 0) return false;
  letter = {};
  iovec place{.iov_base = buffer_.data(), .iov_len = buffer_.size()};
  // Space for the credentials alone: descriptors that somebody sends along are closed unseen.
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred))];
  msghdr message{};
  message.msg_name = &letter.from;
  message.msg_namelen = sizeof(letter.from);
  message.msg_iov = &place;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t got = ::recvmsg(socket_, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0) return false;
  letter.from_bytes = message.msg_namelen;
  // A datagram that was cut is too long to be libkineto's: nothing of it is read.
  if ((message.msg_flags & MSG_TRUNC) == 0)
    letter.bytes = {buffer_.data(), static_cast<size_t>(got)};
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part))
    if (part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_CREDENTIALS) {
      ucred sender{};
      std::memcpy(&sender, CMSG_DATA(part), sizeof(sender));
      letter.pid = sender.pid;
      letter.user = sender.uid;
    }
  return true;
}

bool KinetoSocket::answer(const Letter& letter, std::string_view bytes) const {
  if (letter.from_bytes <= offsetof(sockaddr_un, sun_path)) return false;  // It has no address.
  return ::sendto(socket_,
                  bytes.data(),
                  bytes.size(),
                  MSG_DONTWAIT | MSG_NOSIGNAL,
                  reinterpret_cast<const sockaddr*>(&letter.from),
                  letter.from_bytes) == static_cast<ssize_t>(bytes.size());
}

}  // namespace ridge::attach
