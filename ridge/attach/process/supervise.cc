// `ridge supervise`: starts a program, reports its end to ridge, and ends all of it if ridge is
// gone or asks for it.
//
// As a subreaper it adopts every process of the program whose parent has ended, daemons included:
// as long as one of them is left, wait() knows of a child. So nothing hides.
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <unordered_set>
#include <utility>

#include "ridge/attach/process/program.h"
#include "ridge/attach/process/program_protocol.h"
#include "ridge/attach/process/program_start.h"
#include "ridge/attach/process/supervise_tree.h"
#include "ridge/base/clock.h"

namespace ridge::attach {
namespace {

constexpr int64_t kMillisecond = 1'000'000;
constexpr int64_t kGraceNs = 2000 * kMillisecond;  // from SIGTERM to SIGKILL
constexpr int64_t kKillNs = 5000 * kMillisecond;   // for SIGKILL: a disk may hold a process
constexpr int kScanMilliseconds = 50, kKillScanMilliseconds = 5;
// The copies of a signal to a process group arrive within it.
constexpr int kGroupMilliseconds = 20;
// timeout(1) signals ridge and then the group: relayed signals of that distance share one copy.
constexpr int64_t kSameSignalNs = 100 * kMillisecond;

constexpr std::array kStopSignals = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

/// Closes what ridge had open for itself.
void close_others(const SupervisorTask& task) {
  std::vector<int> others;
  DIR* folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return;
  while (const dirent* entry = ::readdir(folder)) {
    const int number = std::atoi(entry->d_name);
    const bool is_kept = number <= STDERR_FILENO || number == task.socket ||
                         number == ::dirfd(folder) || (task.adopted != 0 && number == task.pipe) ||
                         std::ranges::find(task.inherited, number) != task.inherited.end();
    if (!is_kept) others.push_back(number);
  }
  ::closedir(folder);
  for (int number : others) ::close(number);
}

class Supervisor {
 public:
  explicit Supervisor(SupervisorTask task) : task_(std::move(task)) {}

  /// Starts the program and reports that to ridge; false: it cannot be started.
  bool start();
  /// Until ridge finishes or is gone, or the program has ended that ridge left.
  void serve();

 private:
  /// The last signal of one kind that came to this process itself.
  struct Copy {
    pid_t sender = -1;
    int64_t at_ns = 0;
    bool is_matched = false;  ///< Ridge has relayed its own copy.
  };

  void listen();
  SandboxTrouble launch();
  SandboxTrouble adopt();
  void report(const Report& report) const;
  void let_go() const;
  [[noreturn]] void become_program(int failure, pid_t supervisor);
  void hear();
  void wait_milliseconds(int milliseconds);
  bool reap();
  bool obey();
  void relay(int signal, pid_t sender);
  bool came_to_group(int signal, pid_t sender);
  void send(int signal);
  void interrupt();
  void end_all();

  SupervisorTask task_;
  int signals_ = -1;
  pid_t program_ = -1;
  int64_t started_ns_ = 0;
  bool runs_ = false;
  bool is_stopping_ = false;  // Somebody asked the program to end, by a signal.
  bool is_left_ = false;      // Ridge is gone, and the program goes on.
  std::array<Copy, kStopSignals.size()> copies_{};
};

// Blocked signals wait to be read: no terminal's key stops or ends this process.
void Supervisor::listen() {
  sigset_t all, heard;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  // While SIGCHLD is ignored wait() gets nothing.
  std::signal(SIGCHLD, SIG_DFL);
  ::sigemptyset(&heard);
  ::sigaddset(&heard, SIGCHLD);
  for (int signal : kStopSignals)
    if (!process_start().is_ignored(signal)) ::sigaddset(&heard, signal);
  signals_ = ::signalfd(-1, &heard, SFD_CLOEXEC | SFD_NONBLOCK);
}

void Supervisor::report(const Report& report) const {
  while (::send(task_.socket, &report, sizeof report, MSG_NOSIGNAL) < 0 && errno == EINTR) {
  }
}

// Only what a new process of a single thread may do before exec.
void Supervisor::become_program(int failure, pid_t supervisor) {
  SandboxTrouble trouble;
  if (!task_.sandbox.folders.empty()) trouble = enter_sandbox(task_.sandbox);
  // After it: another user namespace may take it back.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != supervisor) ::_exit(0);  // floors-waiver: a process without its parent
  const ProcessStart& start = process_start();
  for (int signal = 1; signal < NSIG; ++signal)
    std::signal(signal, start.is_ignored(signal) ? SIG_IGN : SIG_DFL);
  for (int stream = 0; stream < 3; ++stream)
    if (start.is_closed[static_cast<size_t>(stream)]) ::close(stream);
  std::vector<char*> words;
  for (std::string& word : task_.command) words.push_back(word.data());
  words.push_back(nullptr);
  ::sigprocmask(SIG_SETMASK, &start.blocked, nullptr);
  if (trouble.stage == SandboxTrouble::kNone) {
    ::execvp(words[0], words.data());
    trouble.error = errno;
  }
  [[maybe_unused]] const ssize_t written = ::write(failure, &trouble, sizeof trouble);
  ::_exit(0);  // floors-waiver: the process has no program
}

// No error: it runs.
SandboxTrouble Supervisor::launch() {
  int failure[2];
  if (signals_ < 0 || ::pipe2(failure, O_CLOEXEC) != 0) return {.error = errno};
  const pid_t self = ::getpid();
  started_ns_ = now_ns();
  program_ = ::fork();
  if (program_ == 0) become_program(failure[1], self);
  SandboxTrouble trouble{.error = program_ < 0 ? errno : 0};
  ::close(failure[1]);
  // Exec closes it.
  while (program_ > 0 && ::read(failure[0], &trouble, sizeof trouble) < 0 && errno == EINTR) {
  }
  ::close(failure[0]);
  if (trouble.error != 0 && program_ > 0) ::waitpid(program_, nullptr, 0);
  return trouble;
}

// The program was forked by this process, before that became the supervisor. No error: it runs.
SandboxTrouble Supervisor::adopt() {
  siginfo_t ended{};
  const auto id = static_cast<id_t>(task_.adopted);
  if (signals_ < 0 || ::waitid(P_PID, id, &ended, WEXITED | WNOHANG | WNOWAIT) != 0)
    return {.error = errno};
  started_ns_ = now_ns();
  program_ = task_.adopted;
  // If it has ended before, reap() tells.
  [[maybe_unused]] const ssize_t written = ::write(task_.pipe, "", 1);
  ::close(task_.pipe);
  return {};
}

bool Supervisor::start() {
  ::prctl(PR_SET_NAME, "ridge-supervise");
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  // Somebody may have stopped this process before ridge ends.
  ::prctl(PR_SET_PDEATHSIG, SIGCONT);
  ::fcntl(task_.socket, F_SETFD, FD_CLOEXEC);
  close_others(task_);
  listen();
  const SandboxTrouble trouble = task_.adopted == 0 ? launch() : adopt();
  if (trouble.error != 0) {
    report({.kind = Report::kFailed, .error = trouble.error, .stage = trouble.stage});
    return false;
  }
  runs_ = true;
  let_go();
  report({.kind = Report::kStarted, .pid = program_});
  return true;
}

// Closes the program's streams here: the other end of each shall see the program alone.
void Supervisor::let_go() const {
  for (int number : task_.inherited) ::close(number);
  const int nowhere = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int stream = 0; stream < 3; ++stream) ::dup2(nowhere, stream);
  if (nowhere > STDERR_FILENO) ::close(nowhere);
}

// Reads what signals came.
void Supervisor::hear() {
  signalfd_siginfo info{};
  while (::read(signals_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    const auto signal = std::ranges::find(kStopSignals, static_cast<int>(info.ssi_signo));
    if (signal == kStopSignals.end()) continue;
    // The program is in the same group: it is stopped, too.
    is_stopping_ |= runs_;
    copies_[static_cast<size_t>(signal - kStopSignals.begin())] = {
        .sender = static_cast<pid_t>(info.ssi_pid), .at_ns = now_ns()};
  }
}

// Or until a signal arrives.
void Supervisor::wait_milliseconds(int milliseconds) {
  pollfd poll{.fd = signals_, .events = POLLIN, .revents = 0};
  ::poll(&poll, 1, milliseconds);
  hear();
}

// Waits for all that has ended, and reports the program's end; false: no child is left.
bool Supervisor::reap() {
  while (true) {
    int status = 0;
    rusage usage{};
    const pid_t ended = ::wait4(-1, &status, WNOHANG, &usage);
    if (ended < 0 && errno == EINTR) continue;
    if (ended <= 0) return ended == 0;
    if (ended != program_ || !runs_) continue;
    runs_ = false;
    report({.kind = Report::kEnded,
            .pid = program_,
            .status = status,
            .peak_rss_bytes = int64_t{usage.ru_maxrss} * 1024,
            .lifetime_ns = now_ns() - started_ns_});
  }
}

// SIGTERM, and for who is still there after two seconds SIGKILL. Who is not ours to end stays.
void Supervisor::end_all() {
  std::unordered_set<pid_t> asked;
  const int64_t grace = now_ns() + kGraceNs;
  while (reap()) {
    const bool is_forced = now_ns() >= grace;
    bool is_any_ours = false;
    const std::vector<pid_t> left = descendants();
    for (pid_t pid : left) {
      if (is_forced) {
        is_any_ours |= ::kill(pid, SIGKILL) == 0;
      } else if (asked.insert(pid).second) {
        ::kill(pid, SIGTERM);
        ::kill(pid, SIGCONT);  // one that is stopped would not hear it
      }
    }
    if (is_forced && !left.empty() && !is_any_ours) return;
    if (now_ns() >= grace + kKillNs) return;
    wait_milliseconds(is_forced ? kKillScanMilliseconds : kScanMilliseconds);
  }
}

// On a busy machine ridge may relay its copy seconds after this process has read its own.
bool Supervisor::came_to_group(int signal, pid_t sender) {
  const auto place = std::ranges::find(kStopSignals, signal);
  if (place == kStopSignals.end()) return false;
  Copy& copy = copies_[static_cast<size_t>(place - kStopSignals.begin())];
  if (copy.sender != sender) return false;
  const bool is_first = !copy.is_matched;
  copy.is_matched = true;
  return is_first || now_ns() - copy.at_ns < kSameSignalNs;
}

void Supervisor::send(int signal) {
  if (!runs_) return;
  is_stopping_ |=
      signal == SIGKILL || std::ranges::find(kStopSignals, signal) != kStopSignals.end();
  // No other process can have its number before reap() has waited for it.
  ::kill(program_, signal);
}

// A shell without a terminal has what it starts behind its back ignore SIGINT.
void Supervisor::interrupt() {
  if (!runs_) return;
  is_stopping_ = true;
  for (pid_t pid : descendants()) ::kill(pid, interrupt_signal());
}

// A signal to the whole group came to the program, to ridge, and to this process.
void Supervisor::relay(int signal, pid_t sender) {
  const int64_t until = now_ns() + kGroupMilliseconds * kMillisecond;
  do {
    hear();
    if (came_to_group(signal, sender)) return;
    wait_milliseconds(1);
  } while (now_ns() < until);
  reap();
  if (!came_to_group(signal, sender)) send(signal);
}

// False: there is nothing more to do.
bool Supervisor::obey() {
  Order order;
  const ssize_t got = ::recv(task_.socket, &order, sizeof order, MSG_DONTWAIT);
  if (got < 0 && (errno == EINTR || errno == EAGAIN || errno == ECONNRESET)) return true;
  const bool is_gone = got != static_cast<ssize_t>(sizeof order);
  if (is_gone || order.kind == Order::kFinish) {
    if (runs_) end_all();
    for (const std::string& folder : task_.folders)
      if (is_gone) remove_our_folder(folder.c_str());
    return false;
  }
  if (order.kind == Order::kSend) send(order.signal);
  if (order.kind == Order::kInterrupt) interrupt();
  if (order.kind == Order::kRelay) relay(order.signal, order.sender);
  if (order.kind == Order::kLeave) {
    is_left_ = true;
    ::close(std::exchange(task_.socket, -1));  // poll() passes over it
  }
  return true;
}

void Supervisor::serve() {
  bool is_clear = false;
  do {
    std::array<pollfd, 2> both = {pollfd{.fd = task_.socket, .events = POLLIN, .revents = 0},
                                  pollfd{.fd = signals_, .events = POLLIN, .revents = 0}};
    ::poll(both.data(), both.size(), -1);
    hear();
    reap();
    if (!runs_ && is_stopping_ && !is_clear) {
      end_all();
      is_clear = true;
    }
    if (both[0].revents == 0) continue;
    if (!obey()) return;
  } while (!is_left_ || runs_);
}

}  // namespace

int supervise(const std::vector<std::string>& words) {
  Supervisor supervisor(SupervisorTask::of(words));
  if (supervisor.start()) supervisor.serve();
  return 0;
}

}  // namespace ridge::attach
