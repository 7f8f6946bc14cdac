// Signals that come to this process while a program runs, and are the program's.
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <iterator>

#include "ridge/attach/process/program.h"
#include "ridge/attach/process/program_protocol.h"

namespace ridge::attach {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
constexpr int kAsksToEnd = 3;

// Outlives every object: a handler may run in another thread while one goes.
std::atomic<int> socket_now = -1, signals = 0, asks = 0;
static_assert(std::atomic<int>::is_always_lock_free);

void give(const Order& order) {
  const int socket = socket_now.load();
  if (socket >= 0) ::send(socket, &order, sizeof order, MSG_NOSIGNAL | MSG_DONTWAIT);
}

// Only calls that POSIX allows in a handler.
void handle(int signal, siginfo_t* info, void*) {
  const int code = errno;
  ++signals;
  if ((signal == SIGINT || signal == SIGTERM) && ++asks >= kAsksToEnd)
    give({.kind = Order::kSend, .signal = SIGKILL});
  else if (info->si_code != SI_KERNEL)  // a terminal: to the program, too
    give({.kind = Order::kRelay, .signal = signal, .sender = info->si_pid});
  errno = code;
}

}  // namespace

ProgramSignals::ProgramSignals(const Program& program) {
  signals = asks = 0;
  socket_now = program.socket_;
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    ::sigaction(kSignals[i], nullptr, &before_[i]);
    if (before_[i].sa_handler == SIG_IGN) continue;
    struct sigaction action{};
    action.sa_sigaction = handle;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    ::sigemptyset(&action.sa_mask);
    ::sigaction(kSignals[i], &action, nullptr);
  }
}

ProgramSignals::~ProgramSignals() {
  for (size_t i = 0; i < std::size(kSignals); ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
  socket_now = -1;
}

int ProgramSignals::count() const { return signals; }

}  // namespace ridge::attach
