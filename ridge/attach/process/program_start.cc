#include "ridge/attach/process/program_start.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace ridge::attach {
namespace {

constexpr int kSignals = 64;

bool is_open(int descriptor) { return ::fcntl(descriptor, F_GETFD) >= 0; }

// Those marked to be closed are not for programs: the loader's, or that of this listing itself.
std::vector<int> open_descriptors() {
  std::vector<int> found;
  DIR* folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return found;
  while (const dirent* entry = ::readdir(folder)) {
    if (entry->d_name[0] == '.') continue;
    const int descriptor = std::atoi(entry->d_name);
    const int flags = ::fcntl(descriptor, F_GETFD);
    if (descriptor > STDERR_FILENO && flags >= 0 && (flags & FD_CLOEXEC) == 0)
      found.push_back(descriptor);
  }
  ::closedir(folder);
  std::ranges::sort(found);
  return found;
}

// Asks the system: the C library says nothing of the two signals that it keeps for itself.
bool is_ignored_now(int signal) {
  struct {
    void (*handler)(int);
    std::array<uint64_t, 7> more;  // flags and mask, as the system has them
  } action{};
  return ::syscall(SYS_rt_sigaction, signal, nullptr, &action, sizeof(uint64_t)) == 0 &&
         action.handler == SIG_IGN;
}

ProcessStart look() {
  ProcessStart start;
  for (int stream = 0; stream < 3; ++stream)
    start.is_closed[static_cast<size_t>(stream)] = !is_open(stream);
  start.inherited = open_descriptors();
  for (int signal = 1; signal <= kSignals; ++signal)
    if (is_ignored_now(signal)) start.ignored |= uint64_t{1} << (signal - 1);
  ::sigprocmask(SIG_BLOCK, nullptr, &start.blocked);
  return start;
}

}  // namespace

const ProcessStart& process_start() {
  static const ProcessStart start = look();
  return start;
}

int interrupt_signal() { return process_start().is_ignored(SIGINT) ? SIGTERM : SIGINT; }

namespace {

// Reads the state before main() does anything.
[[maybe_unused]] const ProcessStart& at_load = process_start();

}  // namespace
}  // namespace ridge::attach
