#include "ridge/attach/folders/trace_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "ridge/base/error.h"

namespace ridge::attach {
namespace {

constexpr char kRemoved = 'r';

// The process that waits. Only calls that are safe after the fork of a program with threads; in a
// session of its own, so that no signal of our terminal or group ends it before us. It keeps
// nothing open that others wait for: neither our stdout nor a socket.
[[noreturn]] void wait_and_remove(int pipe, const char* folder, const char* companion) {
  ::setsid();
  ::dup2(pipe, STDIN_FILENO);
  ::close_range(STDOUT_FILENO, ~0U, 0);
  ::open("/dev/null", O_WRONLY);
  ::open("/dev/null", O_WRONLY);
  char word = 0;
  ssize_t got = 0;
  do {
    got = ::read(STDIN_FILENO, &word, 1);
  } while (got < 0 && errno == EINTR);
  if (word != kRemoved) ::execl("/bin/rm", "rm", "-rf", "--", folder, companion, nullptr);
  ::_exit(0);  // floors-waiver: the process that waits is a copy, and must not run our destructors
}

}  // namespace

TraceFolder::TraceFolder(const std::string& parent, const std::string& companion)
    : path_(fmt::format("{}/ridge-attach-{}-XXXXXX", parent, ::getpid())) {
  if (::mkdtemp(path_.data()) == nullptr)
    throw UserError(
        fmt::format(
            "no folder for the trace can be made in '{}': {}", parent, std::strerror(errno)),
        "let this user write there, and let there be space");
  watch(companion);
}

void TraceFolder::watch(const std::string& companion) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return;
  watcher_ = ::fork();
  if (watcher_ == 0) {
    // Open here it would hide our end; systems without close_range leave the rest open.
    ::close(ends[1]);
    wait_and_remove(ends[0], path_.c_str(), companion.empty() ? nullptr : companion.c_str());
  }
  ::close(ends[0]);
  pipe_ = ends[1];
}

TraceFolder::TraceFolder(TraceFolder&& other) noexcept
    : path_(std::exchange(other.path_, {})),
      watcher_(std::exchange(other.watcher_, -1)),
      pipe_(std::exchange(other.pipe_, -1)) {}

TraceFolder::~TraceFolder() {
  if (!path_.empty()) {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  if (pipe_ < 0) return;
  [[maybe_unused]] const ssize_t written = ::write(pipe_, &kRemoved, 1);
  ::close(pipe_);
  while (watcher_ > 0 && ::waitpid(watcher_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace ridge::attach
