#include "ridge/attach/kineto/kineto_daemon.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <utility>
#include <vector>

#include "ridge/attach/kineto/kineto_messages.h"
#include "ridge/attach/kineto/kineto_program.h"
#include "ridge/attach/kineto/kineto_socket.h"
#include "ridge/base/clock.h"
#include "ridge/base/error.h"

namespace ridge::attach {
namespace {

namespace fs = std::filesystem;

constexpr int kTurnMs = 100;
constexpr int kMostLettersATurn = 256;  // A flood must not keep us from the clock.
constexpr double kNanoseconds = 1e9;

double seconds_since(int64_t then_ns) {
  return static_cast<double>(now_ns() - then_ns) / kNanoseconds;
}

// Whether a JSON object or array ends here: a buffer may end so by chance, a file seldom does.
bool ends_closed(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const auto size = static_cast<int64_t>(file.tellg());
  if (!file || size <= 0) return false;
  std::string tail(static_cast<size_t>(std::min<int64_t>(size, 64)), ' ');
  file.seekg(size - static_cast<int64_t>(tail.size()));
  file.read(tail.data(), static_cast<std::streamsize>(tail.size()));
  const size_t last = tail.find_last_not_of(" \t\r\n");
  return file && last != std::string::npos && (tail[last] == '}' || tail[last] == ']');
}

// The files of the folder at one time. libkineto names its file itself, and a newer one writes to
// another name first.
struct Written {
  std::string trace{};  ///< The one that ends in ".json".
  uint64_t bytes = 0;
  bool operator==(const Written&) const = default;
};

Written written_in(const std::string& folder) {
  Written written;
  std::error_code failed;
  fs::directory_iterator entries(folder, failed);
  for (; !failed && entries != fs::directory_iterator(); entries.increment(failed)) {
    std::error_code gone;
    if (!entries->is_regular_file(gone) || entries->is_symlink(gone)) continue;
    const auto size = entries->file_size(gone);
    if (gone) continue;
    written.bytes += size;
    if (entries->path().extension() == ".json") written.trace = entries->path().string();
  }
  return written;
}

class Conversation {
 public:
  Conversation(const OnDemandRequest& request, const std::function<void(std::string_view)>& say)
      : request_(request),
        say_(say),
        program_(request.pid),
        socket_(request.socket, program_.socket_folder()),
        folder_(program_.trace_folder(), socket_.path()),
        began_ns_(now_ns()) {
    say_(fmt::format("waiting for {}, which calls every few seconds", program_.name()));
    if (const std::vector<pid_t> others = program_.others_below(); !others.empty())
      say_(fmt::format("below it run others that can be traced, too: {}", fmt::join(others, ", ")));
  }

  // Answers who calls, for a tenth of a second at most.
  void serve() {
    KinetoSocket::Letter letter;
    int wait = kTurnMs;
    for (int i = 0; i < kMostLettersATurn && socket_.receive(wait, letter); ++i, wait = 0)
      answer(letter);
  }

  // Whether the trace is there and nobody writes to it any more.
  bool is_complete() {
    if (asked_ns_ == 0) return false;
    const bool is_running = program_.is_running();
    const Written now = written_in(folder_.path());
    const bool is_same = now == written_;
    if (!is_same) moved_ns_ = now_ns();
    written_ = now;
    const bool is_whole = !now.trace.empty() && ends_closed(now.trace);
    if (!is_running && !is_whole) fail_ended();
    return is_whole && (!is_running || (is_same && !program_.has_open(now.trace)));
  }

  void check_time() const {
    if (asked_ns_ == 0 && !program_.is_running()) fail_ended();
    if (asked_ns_ == 0 && seconds_since(began_ns_) > request_.timeout_seconds) fail_silent();
    if (asked_ns_ != 0 && seconds_since(moved_ns_) > patience()) fail_without_trace();
  }

  OnDemandTrace take() {
    return {.folder = std::move(folder_), .path = written_.trace, .program = program_.name()};
  }

 private:
  void answer(const KinetoSocket::Letter& letter) {
    const auto message = parse_kineto_message(letter.bytes);
    if (!message) return;
    if (letter.pid > 0) callers_.insert(letter.pid);
    if (message->kind == KinetoMessage::Kind::kRegister) {
      socket_.answer(letter, kineto_count_answer(static_cast<int32_t>(callers_.size())));
      return;
    }
    // The message's claims about its sender may be wrong: it may come from another namespace, or
    // from another program.
    const bool is_ours = letter.pid == program_.pid() && letter.user == ::geteuid();
    if (!is_ours || asked_ns_ != 0) {
      socket_.answer(letter, kineto_config_answer({}));
    } else if (!message->is_free) {
      is_busy_ = true;
      socket_.answer(letter, kineto_config_answer({}));
    } else {
      ask(letter);
    }
  }

  void ask(const KinetoSocket::Letter& letter) {
    KinetoRecording recording{.log_file = folder_.path() + "/trace.json",
                              .duration_ms = request_.duration_ms,
                              .iterations = request_.iterations};
    if (!socket_.answer(letter, kineto_config_answer(kineto_config(recording)))) return;
    asked_ns_ = moved_ns_ = now_ns();
    warm_up_seconds_ = static_cast<double>(recording.warm_up_seconds);
    const std::string length =
        request_.iterations > 0
            ? fmt::format("{} steps", request_.iterations)
            : fmt::format("{:.3g} s", static_cast<double>(request_.duration_ms) / 1000);
    say_(fmt::format(
        "asked {}: it warms up, records {}, and writes its trace", program_.name(), length));
  }

  // Nothing is seen of it while it records, and how long a step takes it alone knows.
  double patience() const {
    const double most = request_.iterations > 0 ? 5 : 1;
    return most * request_.timeout_seconds + warm_up_seconds_ +
           static_cast<double>(request_.duration_ms) / 1000;
  }

  [[noreturn]] void fail_ended() const {
    throw UserError(fmt::format("{} ended before it had written a trace", program_.name()),
                    "attach to one that runs on, or let ridge start it: ridge doctor -- CMD");
  }

  [[noreturn]] void fail_silent() const {
    const std::string what =
        fmt::format("{} has not called within {:.3g} s", program_.name(), request_.timeout_seconds);
    if (program_.is_stopped())
      throw UserError(what + ": it is stopped",
                      fmt::format("wake it: kill -CONT {}", program_.pid()));
    if (is_busy_)
      throw UserError(what + " while it was free: it is being profiled already",
                      "try again when that is over");
    std::string others;
    if (!callers_.empty()) others = fmt::format(" (others have: {})", fmt::join(callers_, ", "));
    throw UserError(what + others,
                    "start it with KINETO_USE_DAEMON=1 and a PyTorch that has Kineto (2.0 or "
                    "newer), or let ridge start it: ridge doctor -- CMD");
  }

  [[noreturn]] void fail_without_trace() const {
    throw UserError(
        fmt::format("{} took the request, but has written no whole trace for {:.3g} s",
                    program_.name(),
                    patience()),
        request_.iterations > 0
            ? "ask for fewer steps, or for seconds"
            : "look at what it says on stderr (KINETO_LOG_LEVEL=0 makes libkineto talk)");
  }

  const OnDemandRequest& request_;
  const std::function<void(std::string_view)>& say_;
  KinetoProgram program_;
  KinetoSocket socket_;
  TraceFolder folder_;
  int64_t began_ns_, asked_ns_ = 0, moved_ns_ = 0;
  double warm_up_seconds_ = 0;
  bool is_busy_ = false;
  std::set<pid_t> callers_;
  Written written_;
};

}  // namespace

std::optional<OnDemandTrace> trace_on_demand(const OnDemandRequest& request,
                                             const std::function<bool()>& should_stop,
                                             const std::function<void(std::string_view)>& say) {
  Conversation conversation(request, say);
  while (!should_stop()) {
    conversation.serve();
    if (conversation.is_complete()) return conversation.take();
    conversation.check_time();
  }
  return std::nullopt;
}

}  // namespace ridge::attach
