// The tuner's side of a worker: starts it, asks, waits with a limit, and ends it.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "ridge/base/clock.h"
#include "ridge/base/cpu/cpu_affinity.h"
#include "ridge/base/error.h"
#include "ridge/base/json_fields.h"
#include "ridge/base/stop.h"
#include "ridge/io/json.h"
#include "ridge/proof/trial_record.h"
#include "ridge/tune/engine/worker.h"

extern char** environ;

namespace ridge {
namespace {

constexpr const char* kSource = "answer";

// How long a wish to stop may go unnoticed.
constexpr int kPollMilliseconds = 50;

// From the end of a process's output to its own end: on a busy machine that takes seconds.
constexpr int64_t kEndNs = 10'000'000'000;

// Reads the fields of an object; UserError for one that is missing or of another type.
class AnswerReader {
 public:
  explicit AnswerReader(const JsonValue& object) : object_(object) {}

  void operator()(const char* key, bool& out) const { out = at(key).as_bool(key); }
  void operator()(const char* key, int64_t& out) const { out = at(key).as_integer(key); }
  void operator()(const char* key, double& out) const { out = at(key).as_number(key); }
  void operator()(const char* key, std::string& out) const { out = at(key).as_string(key); }
  void operator()(const char* key, std::vector<std::string>& out) const {
    for (const JsonValue& text : at(key).as_array(key)) out.push_back(text.as_string(key));
  }
  void operator()(const char* key, std::vector<StepLaunch>& out, size_t most) const {
    const JsonValue::Array& launches = at(key).as_array(key);
    check(launches.size() <= most, "a time-line of {} launches", launches.size());
    for (const JsonValue& launch : launches)
      StepLaunch::fields(out.emplace_back(), AnswerReader(launch));
  }
  void known(const char* key, std::optional<int64_t>& out) const {
    if (const JsonValue* value = object_.find(key)) out = value->as_integer(key);
  }

 private:
  const JsonValue& at(const char* key) const { return object_.at(key, kSource); }

  const JsonValue& object_;
};

template <HasFields T>
T read_fields(const JsonValue& object) {
  T value;
  T::fields(value, AnswerReader(object));
  return value;
}

/// Two ends that no other process inherits.
std::array<int, 2> make_pipe() {
  std::array<int, 2> ends{};
  check(pipe2(ends.data(), O_CLOEXEC) == 0, "cannot make a pipe: {}", std::strerror(errno));
  return ends;
}

/// Starts `program trial-worker` with its stdin and stdout at these descriptors.
pid_t start(const std::string& program, int in, int out) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, in, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::string verb = "trial-worker", path = program;
  char* words[] = {path.data(), verb.data(), nullptr};
  pid_t process = -1;
  const UnpinnedScope unpinned;
  const int error = posix_spawn(&process, program.c_str(), &files, nullptr, words, environ);
  posix_spawn_file_actions_destroy(&files);
  check(error == 0, "cannot start '{}': {}", program, std::strerror(error));
  return process;
}

}  // namespace

WorkerProcess::WorkerProcess(const WorkerOptions& options) : options_(options) {
  const auto requests = make_pipe();
  const auto answers = make_pipe();
  to_ = requests[1];
  from_ = answers[0];
  const auto close_theirs = [&] {
    close(requests[0]);
    close(answers[1]);
  };
  try {
    process_ = start(options_.program, requests[0], answers[1]);
  } catch (...) {
    close_theirs();
    end();
    throw;
  }
  close_theirs();
}

WorkerProcess::WorkerProcess(const WorkerOptions& options,
                             const std::string& config_toml,
                             int64_t epoch)
    : WorkerProcess(options) {
  std::string text;
  JsonWriter json(text);
  json.begin_object().field("open", config_toml).field("epoch", epoch).end_object().finish();
  facts_ = read_fields<VariantFacts>(parse_json(ask(text), kSource).at("facts", kSource));
}

WorkerProcess::~WorkerProcess() { end(); }

void WorkerProcess::end() {
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
std::string WorkerProcess::how_it_ended() {
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

std::string WorkerProcess::read_line() {
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

std::string WorkerProcess::ask(const std::string& request) {
  if (process_ < 0) throw VariantFailed("its process is gone");
  const std::string line = request + "\n";
  for (size_t at = 0; at < line.size();) {
    const ssize_t count = write(to_, line.data() + at, line.size() - at);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw VariantFailed(how_it_ended());
    at += static_cast<size_t>(count);
  }
  std::string answer = read_line();
  const JsonValue json = parse_json(answer, kSource);
  if (const JsonValue* error = json.find("error")) throw VariantFailed(error->as_string("error"));
  return answer;
}

Block WorkerProcess::run(int64_t steps, StepKind kind) {
  std::string text;
  JsonWriter json(text);
  json.begin_object().field("run", steps).field("kind", name_of(kind)).end_object().finish();
  const JsonValue answer = parse_json(ask(text), kSource);
  const JsonValue& block = answer.at("block", kSource);
  measured_bytes_ = block.at("measured_bytes", kSource).as_integer("measured_bytes");
  return read_fields<Block>(block);
}

StepTimeline WorkerProcess::timeline(int64_t steps) {
  std::string text;
  JsonWriter json(text);
  json.begin_object().field("timeline", steps).end_object().finish();
  const JsonValue answer = parse_json(ask(text), kSource);
  return read_fields<StepTimeline>(answer.at("timeline", kSource));
}

GuardAnswer WorkerProcess::guard(const GuardRequest& request) {
  std::string text;
  JsonWriter json(text);
  json.begin_object().field("guard", request.candidate).field("reference", request.reference);
  json.field("class", name_of(request.semantic_class)).field("most_steps", request.most_steps);
  json.end_object().finish();
  const JsonValue whole = parse_json(ask(text), kSource);
  return read_fields<GuardAnswer>(whole.at("guard", kSource));
}

void WorkerProcess::rewind() {
  if (facts_.mix > 1) ask(R"({"rewind":true})");
}

std::string WorkerProcess::state_hash() {
  return parse_json(ask(R"({"hash":true})"), kSource).at("hash", kSource).as_string("hash");
}

int64_t WorkerProcess::fewest_parts() {
  constexpr const char* kKey = "fewest_parts";
  return parse_json(ask(R"({"fewest_parts":true})"), kSource).at(kKey, kSource).as_integer(kKey);
}

}  // namespace ridge
