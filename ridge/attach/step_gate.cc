#include "ridge/attach/step_gate.h"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include "ridge/attach/folders/folder_socket.h"
#include "ridge/base/error.h"
#include "ridge/io/json.h"

namespace ridge::attach {
namespace {

constexpr size_t kMostBytes = 16384;
constexpr JsonLimits kLimits{.bytes = kMostBytes, .values = 2000, .depth = 6};
constexpr const char* kSource = "the process that steps";
constexpr double kMostSeconds = 1e9;

/// A whole number of a message that is not out of all bounds.
int64_t whole(const JsonValue& object, const char* key) {
  const int64_t number = object.at(key, kSource).as_integer(key);
  check(number >= 0 && number <= std::numeric_limits<int32_t>::max(), "{} {}", number, key);
  return number;
}

double seconds(const JsonValue& value, const char* name) {
  const double number = value.as_number(name);
  check(std::isfinite(number) && number >= 0 && number < kMostSeconds, "{} {}", number, name);
  return number;
}

std::string source_of(const JsonValue& object) {
  const std::string& source = object.at("source", kSource).as_string("source");
  check(source == "optimizer" || source == "module", "steps of '{}'", source);
  return source;
}

GateBlock block_of(const JsonValue& object) {
  GateBlock block{.steps = whole(object, "steps"),
                  .seconds = seconds(object.at("seconds", kSource), "seconds"),
                  .waited_seconds = seconds(object.at("waited", kSource), "waited"),
                  .switches = whole(object, "switches"),
                  .queue = whole(object, "queue"),
                  .source = source_of(object),
                  .breaks = {}};
  check(block.steps > 0, "a block without steps");
  for (const JsonValue& entry : object.at("breaks", kSource).as_array("breaks")) {
    const JsonValue::Array& both = entry.as_array("breaks");
    check(both.size() == 2, "{} numbers of a break", both.size());
    const int64_t steps = both[1].as_integer("breaks");
    check(steps > 0 && steps <= std::numeric_limits<int32_t>::max(), "{} steps", steps);
    block.breaks.push_back({seconds(both[0], "breaks"), steps});
  }
  return block;
}

void send_text(const Descriptor& to, const std::string& text) {
  // A failure is ignored: the next read finds that the process is gone.
  while (::send(to.get(), text.data(), text.size(), MSG_NOSIGNAL) < 0 && errno == EINTR) {
  }
}

}  // namespace

StepGate::StepGate(const std::string& folder) : listener_(listen_in(folder, "gate")) {}

void StepGate::refuse(Descriptor connection) { send_text(connection, R"({"go":0})"); }

void StepGate::accept_others() {
  for (;;) {
    Descriptor other(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (other.get() < 0) return;
    if (connection_.get() >= 0) {
      refuse(std::move(other));
    } else {
      connection_ = std::move(other);
      is_known_ = false;
    }
  }
}

StepGate::Event StepGate::lose(std::string trouble) {
  connection_ = Descriptor();
  process_ = 0;
  trouble_ = std::move(trouble);
  return Event::kGone;
}

StepGate::Event StepGate::receive() {
  std::array<char, kMostBytes> buffer;
  const ssize_t got = ::recv(connection_.get(), buffer.data(), buffer.size(), MSG_TRUNC);
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return Event::kNothing;
  if (got <= 0) return lose({});
  if (static_cast<size_t>(got) > buffer.size()) return lose("it says too much");
  try {
    const JsonValue message =
        parse_json({buffer.data(), static_cast<size_t>(got)}, kSource, kLimits);
    if (!is_known_) {
      const JsonValue& hello = message.at("hello", kSource);
      source_ = source_of(hello);
      process_ = static_cast<pid_t>(whole(hello, "pid"));
      is_known_ = true;
      return Event::kHeld;
    }
    block_ = block_of(message.at("block", kSource));
    return Event::kBlock;
  } catch (const UserError& error) {
    return lose(fmt::format("it says what makes no sense: {}", error.what()));
  }
}

StepGate::Event StepGate::wait(int milliseconds) {
  std::array<pollfd, 2> both = {pollfd{.fd = listener_.get(), .events = POLLIN, .revents = 0},
                                pollfd{.fd = connection_.get(), .events = POLLIN, .revents = 0}};
  if (::poll(both.data(), both.size(), milliseconds) <= 0) return Event::kNothing;
  if (both[0].revents != 0) accept_others();
  return both[1].revents != 0 ? receive() : Event::kNothing;
}

void StepGate::go(int64_t steps, bool with_saves) {
  send_text(connection_, fmt::format(R"({{"go":{},"saves":{}}})", steps, with_saves));
}

}  // namespace ridge::attach
