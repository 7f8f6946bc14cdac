#include "ridge/cli/signals.h"

#include <unistd.h>

#include <cerrno>
#include <iterator>
#include <string_view>

#include "ridge/base/stop.h"
#include "ridge/cli/command.h"

namespace ridge {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM};

// Only calls that POSIX allows in a handler.
void handle(int signal) {
  const int code = errno;
  if (stop_requested()) ::_exit(kSignalBase + signal);
  request_stop(signal);
  constexpr std::string_view kText = "\nstopping after this step; a second signal stops at once\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kText.data(), kText.size());
  errno = code;
}

}  // namespace

StopSignals::StopSignals() {
  clear_stop();
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    ::sigaction(kSignals[i], nullptr, &before_[i]);
    if (before_[i].sa_handler == SIG_IGN) continue;
    struct sigaction action{};
    action.sa_handler = handle;
    action.sa_flags = SA_RESTART;  // a read in progress goes on: the trainer polls
    ::sigemptyset(&action.sa_mask);
    ::sigaction(kSignals[i], &action, nullptr);
  }
}

StopSignals::~StopSignals() {
  for (size_t i = 0; i < std::size(kSignals); ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
}

}  // namespace ridge
