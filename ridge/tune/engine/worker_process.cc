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
#include "ridge/base/json_writer.h"
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

VariantFacts read_facts(const JsonValue& json) {
  const auto integer = [&](const char* key) { return json.at(key, kSource).as_integer(key); };
  VariantFacts facts;
  facts.plan_hash = json.at("plan_hash", kSource).as_string("plan_hash");
  facts.planned_bytes = integer("planned_bytes");
  facts.staging_bytes = integer("staging_bytes");
  facts.state_bytes = integer("state_bytes");
  facts.batch = integer("batch");
  facts.micro = integer("micro");
  facts.queue = integer("queue");
  facts.steps_per_epoch = integer("steps_per_epoch");
  facts.epoch_samples = integer("epoch_samples");
  facts.memory_text = json.at("memory_text", kSource).as_string("memory_text");
  facts.made_again = integer("made_again");
  facts.mix = integer("mix");
  facts.fair_steps = integer("fair_steps");
  facts.token_growth = json.at("token_growth", kSource).as_number("token_growth");
  if (const JsonValue* free = json.find("free_device_bytes"))
    facts.free_device_bytes = free->as_integer("free_device_bytes");
  facts.open_seconds = json.at("open_seconds", kSource).as_number("open_seconds");
  return facts;
}

Block read_block(const JsonValue& json) {
  const auto number = [&](const char* key) { return json.at(key, kSource).as_number(key); };
  return {.seconds = number("seconds"),
          .waited_seconds = number("waited_seconds"),
          .stolen_seconds = number("stolen_seconds"),
          .switches = json.at("switches", kSource).as_integer("switches")};
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
  facts_ = read_facts(parse_json(ask(text), kSource).at("facts", kSource));
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
  const int64_t until = now_ns() + 1'000'000'000;
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
      throw WorkerFailed(fmt::format("no answer within {:.3g} s", options_.answer_seconds));
    }
    pollfd waiting{.fd = from_, .events = POLLIN, .revents = 0};
    if (poll(&waiting, 1, kPollMilliseconds) <= 0) continue;
    char buffer[4096];
    const ssize_t count = read(from_, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) throw WorkerFailed(how_it_ended());
    pending_.append(buffer, static_cast<size_t>(count));
  }
}

std::string WorkerProcess::ask(const std::string& request) {
  if (process_ < 0) throw WorkerFailed("its process is gone");
  const std::string line = request + "\n";
  for (size_t at = 0; at < line.size();) {
    const ssize_t count = write(to_, line.data() + at, line.size() - at);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw WorkerFailed(how_it_ended());
    at += static_cast<size_t>(count);
  }
  std::string answer = read_line();
  const JsonValue json = parse_json(answer, kSource);
  if (const JsonValue* error = json.find("error")) throw WorkerFailed(error->as_string("error"));
  return answer;
}

Block WorkerProcess::run(int64_t steps, StepKind kind) {
  std::string text;
  JsonWriter json(text);
  json.begin_object().field("run", steps).field("kind", name_of(kind)).end_object().finish();
  const JsonValue answer = parse_json(ask(text), kSource);
  const JsonValue& block = answer.at("block", kSource);
  measured_bytes_ = block.at("measured_bytes", kSource).as_integer("measured_bytes");
  return read_block(block);
}

StepTimeline WorkerProcess::timeline(int64_t steps) {
  std::string text;
  JsonWriter json(text);
  json.begin_object().field("timeline", steps).end_object().finish();
  const JsonValue answer = parse_json(ask(text), kSource);
  const JsonValue& found = answer.at("timeline", kSource);
  StepTimeline timeline{.step_ms = found.at("step_ms", kSource).as_number("step_ms"),
                        .launches = {},
                        .merged = found.at("merged", kSource).as_integer("merged")};
  const auto& launches = found.at("launches", kSource).as_array("launches");
  check(launches.size() <= kMostLaunches, "a time-line of {} launches", launches.size());
  for (const JsonValue& launch : launches) {
    const auto text_of = [&](const char* key) { return launch.at(key, kSource).as_string(key); };
    const auto number = [&](const char* key) { return launch.at(key, kSource).as_number(key); };
    timeline.launches.push_back({.name = text_of("name"),
                                 .row = text_of("row"),
                                 .start_ms = number("start_ms"),
                                 .duration_ms = number("duration_ms"),
                                 .site = text_of("site")});
  }
  return timeline;
}

GuardAnswer WorkerProcess::guard(const GuardRequest& request) {
  std::string text;
  JsonWriter json(text);
  json.begin_object().field("guard", request.candidate).field("reference", request.reference);
  json.field("class", name_of(request.semantic_class)).field("most_steps", request.most_steps);
  json.end_object().finish();
  const JsonValue whole = parse_json(ask(text), kSource);
  const JsonValue& guard = whole.at("guard", kSource);
  const auto number = [&](const char* key) { return guard.at(key, kSource).as_number(key); };
  GuardAnswer answer{.passed = guard.at("passed", kSource).as_bool("passed"),
                     .can_tell = guard.at("can_tell", kSource).as_bool("can_tell"),
                     .text = guard.at("text", kSource).as_string("text"),
                     .margin = number("margin"),
                     .detectable = number("detectable"),
                     .power = number("power"),
                     .f32_modules = {}};
  for (const JsonValue& module : guard.at("f32_modules", kSource).as_array("f32_modules"))
    answer.f32_modules.push_back(module.as_string("f32_modules"));
  return answer;
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
