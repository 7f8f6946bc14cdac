// One process of ridge behind two pipes: starts it, asks, waits with a limit, and ends it.
#include "ridge/tune/worker_pipe.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <istream>
#include <new>
#include <ostream>

#include "ridge/base/clock.h"
#include "ridge/base/cpu/cpu_affinity.h"
#include "ridge/base/error.h"
#include "ridge/base/stop.h"
#include "ridge/tune/target.h"

extern char** environ;

namespace ridge {
namespace {

// How long a wish to stop may go unnoticed.
constexpr int kPollMilliseconds = 50;

// From the end of a process's output to its own end: on a busy machine that takes seconds.
constexpr int64_t kEndNs = 10'000'000'000;

/// Two ends that no other process inherits.
std::array<int, 2> make_pipe() {
  std::array<int, 2> ends{};
  check(pipe2(ends.data(), O_CLOEXEC) == 0, "cannot make a pipe: {}", std::strerror(errno));
  return ends;
}

/// Starts the program with its stdin and stdout at these descriptors.
pid_t start(const std::string& program, std::vector<std::string> words, int in, int out) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, in, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  words.insert(words.begin(), program);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t process = -1;
  const UnpinnedScope unpinned;
  const int error =
      posix_spawn(&process, program.c_str(), &files, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  check(error == 0, "cannot start '{}': {}", program, std::strerror(error));
  return process;
}

}  // namespace

WorkerPipe::WorkerPipe(const WorkerOptions& options, const std::vector<std::string>& words)
    : options_(options) {
  const auto requests = make_pipe();
  const auto answers = make_pipe();
  to_ = requests[1];
  from_ = answers[0];
  const auto close_theirs = [&] {
    close(requests[0]);
    close(answers[1]);
  };
  try {
    process_ = start(options_.program, words, requests[0], answers[1]);
  } catch (...) {
    close_theirs();
    end();
    throw;
  }
  close_theirs();
}

void WorkerPipe::end() {
  if (to_ >= 0) close(to_);
  if (from_ >= 0) close(from_);
  to_ = from_ = -1;
  if (process_ < 0) return;
  kill(process_, SIGKILL);
  while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
  process_ = -1;
}

// After its end of the pipe was closed: a process that is still there is on its way out.
std::string WorkerPipe::how_it_ended() {
  int status = 0;
  pid_t ended = 0;
  const int64_t until = now_ns() + kEndNs;
  while ((ended = waitpid(process_, &status, WNOHANG)) == 0 && now_ns() < until) usleep(10'000);
  if (ended <= 0) return "it closed its output and went on";
  process_ = -1;
  if (WIFSIGNALED(status))
    return fmt::format("it was ended by signal {} ({}){}",
                       WTERMSIG(status),
                       strsignal(WTERMSIG(status)),
                       WTERMSIG(status) == SIGKILL ? ": the system may be out of memory" : "");
  return fmt::format("it ended with exit code {}", WEXITSTATUS(status));
}

std::string WorkerPipe::read_line() {
  const int64_t start = now_ns();
  for (;;) {
    if (const size_t end = pending_.find('\n'); end != std::string::npos) {
      std::string line = pending_.substr(0, end);
      pending_.erase(0, end + 1);
      return line;
    }
    const bool is_late = options_.deadline_ns != 0 && now_ns() > options_.deadline_ns;
    if (stop_requested() || is_late) {
      end();  // its answer would come to the next question
      throw TrialStopped(stop_requested() ? "stopped by a signal" : "the budget is spent");
    }
    if (static_cast<double>(now_ns() - start) * 1e-9 > options_.answer_seconds) {
      end();
      throw VariantFailed(fmt::format("no answer within {:.3g} s", options_.answer_seconds));
    }
    pollfd waiting{.fd = from_, .events = POLLIN, .revents = 0};
    if (poll(&waiting, 1, kPollMilliseconds) <= 0) continue;
    char buffer[4096];
    const ssize_t count = read(from_, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) throw VariantFailed(how_it_ended());
    pending_.append(buffer, static_cast<size_t>(count));
  }
}

JsonValue WorkerPipe::ask(const std::string& request) {
  if (process_ < 0) throw VariantFailed("its process is gone");
  const std::string line = request + "\n";
  for (size_t at = 0; at < line.size();) {
    const ssize_t count = write(to_, line.data() + at, line.size() - at);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw VariantFailed(how_it_ended());
    at += static_cast<size_t>(count);
  }
  JsonValue answer = parse_json(read_line(), "answer");
  if (const JsonValue* error = answer.find("error")) throw VariantFailed(error->as_string("error"));
  return answer;
}

void serve_requests(std::istream& in,
                    std::ostream& out,
                    const std::function<void(const JsonValue&, JsonWriter&)>& answer) {
  for (std::string line; std::getline(in, line);) {
    std::string text, what;
    try {
      JsonWriter json(text);
      json.begin_object();
      answer(parse_json(line, "request"), json);
      json.end_object().finish();
    } catch (const std::bad_alloc&) {
      what = "out of memory";
    } catch (const std::exception& error) {
      what = error.what();
    }
    if (!what.empty()) {
      text.clear();
      JsonWriter json(text);
      json.begin_object().field("error", what).end_object().finish();
    }
    out << text << std::endl;
  }
}

}  // namespace ridge
