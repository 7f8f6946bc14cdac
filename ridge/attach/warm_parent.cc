#include "ridge/attach/warm_parent.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <limits>

#include "ridge/attach/folders/folder_socket.h"
#include "ridge/base/error.h"
#include "ridge/base/html/markup.h"
#include "ridge/base/json_writer.h"
#include "ridge/io/json.h"

namespace ridge::attach {
namespace {

constexpr size_t kMostBytes = 16384, kMostNote = 400;
constexpr JsonLimits kLimits{.bytes = kMostBytes, .values = 100, .depth = 4};
constexpr const char* kSource = "the process that is forked";
// Forking takes milliseconds; a process that does not answer is not forked any more.
constexpr int kPatienceMilliseconds = 60'000;

constexpr const char* kEnded = "the process that had imported its packages ended";

bool send_with(int socket, const std::string& text, const std::array<int, 3>& descriptors) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof descriptors)> control{};
  iovec piece{.iov_base = const_cast<char*>(text.data()), .iov_len = text.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof descriptors);
  std::memcpy(CMSG_DATA(header), descriptors.data(), sizeof descriptors);
  ssize_t sent = -1;
  do {
    sent = ::sendmsg(socket, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(text.size());
}

}  // namespace

WarmParent::WarmParent(const std::string& folder) : listener_(listen_in(folder, "parent")) {}

void WarmParent::lose(const std::string& note) {
  connection_ = Descriptor();
  listener_ = Descriptor();
  state_ = State::kGone;
  note_ = shortened(note, kMostNote);
}

// Reads one packet, which has come.
void WarmParent::receive() {
  std::array<char, kMostBytes> buffer;
  const ssize_t got = ::recv(connection_.get(), buffer.data(), buffer.size(), MSG_TRUNC);
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (got <= 0 || static_cast<size_t>(got) > buffer.size()) return lose(kEnded);
  try {
    const JsonValue message =
        parse_json({buffer.data(), static_cast<size_t>(got)}, kSource, kLimits);
    if (const JsonValue* refusal = message.find("refusal")) {
      why_ = shortened(refusal->as_string("refusal"), kMostNote);
      if (state_ == State::kImporting) lose(why_);
    } else if (const JsonValue* ready = message.find("ready")) {
      note_ = shortened(ready->at("note", kSource).as_string("note"), kMostNote);
      state_ = State::kReady;
    } else {
      const int64_t pid = message.at("started", kSource).as_integer("started");
      check(pid > 1 && pid <= std::numeric_limits<pid_t>::max(), "process {}", pid);
      started_ = static_cast<pid_t>(pid);
    }
  } catch (const UserError& error) {
    lose(fmt::format("it says what makes no sense: {}", error.what()));
  }
}

WarmParent::State WarmParent::look() {
  if (state_ != State::kGone && connection_.get() < 0)
    connection_ =
        Descriptor(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (connection_.get() < 0) return state_;
  pollfd poll{.fd = connection_.get(), .events = POLLIN, .revents = 0};
  if (::poll(&poll, 1, 0) > 0) receive();
  return state_;
}

std::unique_ptr<Program> WarmParent::start(const ProgramRequest& request,
                                           const std::string& shim_folder) {
  why_ = "it could not be forked";
  return Program::forked(request,
                         request_,
                         shim_folder,
                         [this](const std::string& path, const std::array<int, 3>& descriptors) {
                           return fork(path, descriptors);
                         });
}

pid_t WarmParent::fork(const std::string& path, const std::array<int, 3>& descriptors) {
  started_ = 0;
  why_.clear();
  if (look() != State::kReady) return 0;
  std::string order;
  JsonWriter json(order);
  json.begin_object().field("start", path).end_object().finish();
  if (!send_with(connection_.get(), order, descriptors)) lose(kEnded);
  while (state_ == State::kReady && started_ == 0 && why_.empty()) {
    pollfd poll{.fd = connection_.get(), .events = POLLIN, .revents = 0};
    const int came = ::poll(&poll, 1, kPatienceMilliseconds);
    if (came > 0) receive();
    if (came == 0) lose("the process that had imported its packages does not answer");
  }
  if (started_ == 0 && why_.empty()) why_ = note_;
  return started_;
}

}  // namespace ridge::attach
