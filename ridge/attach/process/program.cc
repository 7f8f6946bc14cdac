#include "ridge/attach/process/program.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>

#include "ridge/attach/folders/folder_copy.h"
#include "ridge/attach/process/program_protocol.h"
#include "ridge/attach/process/program_start.h"
#include "ridge/base/clock.h"
#include "ridge/base/cpu/cpu_affinity.h"
#include "ridge/base/descriptor.h"
#include "ridge/base/json_writer.h"
#include "ridge/base/utf8.h"

extern char** environ;

namespace ridge::attach {
namespace {

constexpr int kNoSuchProgram = 127, kNotExecutable = 126;
// The supervisor needs at most 2 s for SIGTERM and 5 s for what does not die of SIGKILL.
constexpr int64_t kFinishNs = 10'000'000'000;

/// `folder` is where the program was to run; empty: here.
ProgramError failure(const std::string& name, int error, const std::string& folder = {}) {
  const auto say = [&](const char* fix) {
    return ProgramError(error == ENOENT ? kNoSuchProgram : kNotExecutable,
                        fmt::format("cannot start '{}': {}", name, std::strerror(error)),
                        fix);
  };
  const bool is_path = name.find('/') != std::string::npos;
  switch (error) {
    case ENOENT:
      if (!is_path) return say("put its folder into PATH, or give its path");
      return ::access((std::filesystem::path(folder) / name).c_str(), F_OK) != 0
                 ? say("give the path of the program")
                 : say("it exists, but what its first line names to run it does not");
    case EACCES:
      return say("give a file that may be executed (chmod +x), or its interpreter before it");
    case EAGAIN:
    case ENOMEM:
      return say("let more processes run (ulimit -u), or end some");
    case EMFILE:
    case ENFILE:
      return say("let more files be open (ulimit -n)");
    case E2BIG:
      return say("give it fewer or shorter arguments, or a smaller environment");
    default:
      return say("see whether it starts without ridge");
  }
}

ProgramError supervisor_failure(const ProgramRequest& request, int error) {
  const std::string& name = request.command.front();
  if (error != ENOENT && error != EACCES && error != ENOTDIR) return failure(name, error);
  return {kNotExecutable,
          fmt::format("cannot start the process that watches over '{}', {}: {}",
                      name,
                      request.supervisor,
                      std::strerror(error)),
          "see that /proc is mounted and ridge may be executed"};
}

/// Above stdin, stdout and stderr, whichever of them are closed.
int raised(int descriptor) {
  const int number = ::fcntl(descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  ::close(descriptor);
  return number;
}

void move_paths(std::vector<std::string>& texts, const ProgramRequest& request) {
  for (std::string& text : texts)
    for (const auto& [from, to] : request.moved) text = with_moved_paths(text, from, to);
}

/// Ours with those asked for over it, as exec takes it: "NAME=VALUE".
std::vector<std::string> environment_for(const ProgramRequest& request) {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) entries.emplace_back(*entry);
  for (const auto& [name, value] : request.environment) {
    const std::string start = name + "=";
    const auto is_it = [&](const std::string& entry) { return entry.starts_with(start); };
    const auto found = std::ranges::find_if(entries, is_it);
    if (found == entries.end())
      entries.push_back(start + value);
    else
      *found = start + value;
  }
  move_paths(entries, request);
  return entries;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> found;
  for (std::string& word : words) found.push_back(word.data());
  found.push_back(nullptr);
  return found;
}

SupervisorTask task_for(const ProgramRequest& request, int socket) {
  SupervisorTask task{.socket = socket,
                      .inherited = process_start().inherited,
                      .folders = request.folders,
                      .sandbox = request.sandbox,
                      .command = request.command};
  move_paths(task.command, request);
  return task;
}

std::vector<std::string> supervisor_words(const ProgramRequest& request, int socket) {
  std::vector<std::string> words = {"ridge", "supervise"};
  std::ranges::move(task_for(request, socket).words(), std::back_inserter(words));
  return words;
}

void write_list(JsonWriter& json, std::string_view name, const std::vector<std::string>& texts) {
  json.key(name).begin_array();
  for (const std::string& text : texts) json.value(text);
  json.end_array();
}

/// The file that tells ridge_parent.py of a program that it is to fork.
std::string start_json(const ProgramRequest& request,
                       const ProgramRequest& parent,
                       const std::string& shim_folder) {
  const SupervisorTask task = task_for(request, -1);
  std::string text;
  JsonWriter json(text);
  json.begin_object();
  json.field("folder", shim_folder);
  json.field("working_folder", request.working_folder);
  json.field("supervisor", std::filesystem::canonical(request.supervisor).string());
  write_list(json, "command", task.command);
  write_list(json, "environment", environment_for(request));
  write_list(json, "parent_environment", environment_for(parent));
  write_list(json, "words", task.words_of_adopter());
  json.end_object().finish();
  return text;
}

/// Whether JSON can say all of it.
bool is_utf8(const ProgramRequest& request) {
  const std::vector<std::string> entries = environment_for(request);
  const auto is_text = [](const std::string& text) { return valid_utf8(text) == text; };
  return std::ranges::all_of(entries, is_text) && std::ranges::all_of(request.command, is_text);
}

void check_working_folder(const ProgramRequest& request) {
  const std::string& folder = request.working_folder;
  if (folder.empty() || ::access((folder + "/.").c_str(), X_OK) == 0) return;
  throw UserError(
      fmt::format(
          "cannot run '{}' in '{}': {}", request.command.front(), folder, std::strerror(errno)),
      "give a folder that can be entered");
}

/// For the program's streams; -1 where it has ours.
int open_output(const ProgramRequest& request) {
  if (request.output.empty()) return -1;
  const int file =
      ::open(request.output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
  if (file < 0)
    throw UserError(fmt::format("cannot keep what '{}' writes in '{}': {}",
                                request.command.front(),
                                request.output,
                                std::strerror(errno)),
                    "see that its folder can be written and has room");
  return raised(file);
}

/// How the supervisor is started: with the signals and streams that this process began with, or
/// with those that the program is to have.
class SpawnPlan {
 public:
  SpawnPlan(int socket, int output, const std::string& working_folder) {
    const ProcessStart& start = process_start();
    ::posix_spawn_file_actions_init(&files_);
    // One onto itself takes the mark off that closes it.
    ::posix_spawn_file_actions_adddup2(&files_, socket, socket);
    if (output >= 0) {
      ::posix_spawn_file_actions_addopen(&files_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
      ::posix_spawn_file_actions_adddup2(&files_, output, STDOUT_FILENO);
      ::posix_spawn_file_actions_adddup2(&files_, output, STDERR_FILENO);
    }
    for (int stream = 0; output < 0 && stream < 3; ++stream)
      if (start.is_closed[static_cast<size_t>(stream)])
        ::posix_spawn_file_actions_addclose(&files_, stream);
    if (!working_folder.empty())
      ::posix_spawn_file_actions_addchdir_np(&files_, working_folder.c_str());
    ::posix_spawnattr_init(&attributes_);
    // All that were not ignored. sigfillset() leaves out two, which spawn would then have ignored.
    sigset_t defaults{};
    const uint64_t others = ~start.ignored;
    std::memcpy(&defaults, &others, sizeof others);
    ::posix_spawnattr_setsigdefault(&attributes_, &defaults);
    ::posix_spawnattr_setsigmask(&attributes_, &start.blocked);
    ::posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;
  ~SpawnPlan() {
    ::posix_spawn_file_actions_destroy(&files_);
    ::posix_spawnattr_destroy(&attributes_);
  }

  /// The error's number, or 0.
  int spawn(pid_t& process, const ProgramRequest& request, int socket) const {
    std::vector<std::string> words = supervisor_words(request, socket);
    std::vector<std::string> entries = environment_for(request);
    const UnpinnedScope unpinned;
    return ::posix_spawn(&process,
                         request.supervisor.c_str(),
                         &files_,
                         &attributes_,
                         pointers(words).data(),
                         pointers(entries).data());
  }

 private:
  posix_spawn_file_actions_t files_;
  posix_spawnattr_t attributes_;
};

/// False: the other end is closed. A peer that closed with orders unread makes one read fail first.
bool receive(int socket, Report& report) {
  ssize_t got = -1;
  do {
    got = ::recv(socket, &report, sizeof report, 0);
  } while (got < 0 && (errno == EINTR || errno == ECONNRESET));
  return got == static_cast<ssize_t>(sizeof report);
}

void give(int socket, const Order& order) {
  while (::send(socket, &order, sizeof order, MSG_NOSIGNAL) < 0 && errno == EINTR) {
  }
}

ProgramEnd end_of(const Report& report) {
  ProgramEnd end;
  if (WIFSIGNALED(report.status)) {
    end.signal = WTERMSIG(report.status);
    end.exit_code = 128 + end.signal;
  } else {
    end.exit_code = WEXITSTATUS(report.status);
  }
  end.seconds = static_cast<double>(report.lifetime_ns) * 1e-9;
  end.peak_rss_bytes = report.peak_rss_bytes;
  return end;
}

int64_t milliseconds_until(int64_t ns) { return std::max<int64_t>(0, (ns - now_ns()) / 1'000'000); }

}  // namespace

Program::Program(const ProgramRequest& request) {
  check_internal(!request.command.empty(), "a program without a name");
  name_ = request.command.front();
  check_working_folder(request);
  const Descriptor output(open_output(request));
  int ends[2];
  // It fails only for want of descriptors: the process's limit is reached, or the system's.
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    throw failure(name_, errno);
  socket_ = raised(ends[0]);
  {
    const Descriptor theirs(raised(ends[1]));
    int error = EMFILE;
    if (socket_ >= 0 && theirs.get() >= 0)
      error = SpawnPlan(theirs.get(), output.get(), request.working_folder)
                  .spawn(supervisor_, request, theirs.get());
    if (error != 0) {
      supervisor_ = -1;
      end_supervisor();
      throw supervisor_failure(request, error);
    }
  }
  started_ns_ = now_ns();
  await_start(request);
}

std::unique_ptr<Program> Program::forked(const ProgramRequest& request,
                                         const ProgramRequest& parent,
                                         const std::string& shim_folder,
                                         const ForkOrder& order) {
  check_internal(!request.command.empty() && !request.output.empty(),
                 "[Program::forked] a program without a name or an output");
  if (!request.sandbox.folders.empty() || !is_utf8(request)) return nullptr;
  check_working_folder(request);
  const Descriptor output(open_output(request));
  const Descriptor empty(raised(::open("/dev/null", O_RDONLY | O_CLOEXEC)));
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return nullptr;
  std::unique_ptr<Program> program(new Program);
  program->name_ = request.command.front();
  program->socket_ = raised(ends[0]);
  {
    const Descriptor theirs(raised(ends[1]));
    const std::string path = shim_folder + "/start.json";
    std::ofstream(path, std::ios::binary) << start_json(request, parent, shim_folder);
    if (program->socket_ >= 0 && theirs.get() >= 0 && empty.get() >= 0)
      program->supervisor_ = order(path, {theirs.get(), empty.get(), output.get()});
  }
  if (program->supervisor_ <= 0) {
    program->supervisor_ = -1;
    program->end_supervisor();
    return nullptr;
  }
  program->started_ns_ = now_ns();
  try {
    program->await_start(request);
  } catch (const UserError&) {
    return nullptr;
  }
  return program;
}

void Program::await_start(const ProgramRequest& request) {
  Report report;
  const bool is_there = receive(socket_, report);
  if (is_there && report.kind == Report::kStarted) {
    pid_ = report.pid;
    return;
  }
  end_supervisor();
  if (!is_there)
    throw ProgramError(kNotExecutable,
                       fmt::format("cannot start '{}': the process of ridge that should watch over "
                                   "it ended at once",
                                   name_),
                       "see whether memory is short, or somebody killed it, and try again");
  if (report.stage != SandboxTrouble::kNone)
    throw UserError(
        fmt::format("cannot keep what '{}' writes in '{}' apart: {}",
                    name_,
                    request.sandbox.folders[0],
                    SandboxTrouble{.stage = report.stage, .error = report.error}.text()),
        "see whether what is mounted has changed, and try again");
  throw failure(name_, report.error, request.working_folder);
}

Program::~Program() {
  if (supervisor_ >= 0) end_supervisor();
}

// Lets the supervisor finish, whatever state it is in, and waits for it.
void Program::end_supervisor() {
  if (socket_ >= 0 && supervisor_ >= 0) {
    ::kill(supervisor_, SIGCONT);
    give(socket_, {.kind = Order::kFinish});
    const int64_t until = now_ns() + kFinishNs;
    Report report;
    bool is_open = true;
    while (is_open && now_ns() < until) {
      pollfd poll{.fd = socket_, .events = POLLIN, .revents = 0};
      if (::poll(&poll, 1, static_cast<int>(milliseconds_until(until))) > 0)
        is_open = receive(socket_, report);
    }
    if (is_open) ::kill(supervisor_, SIGKILL);
  }
  if (socket_ >= 0) ::close(socket_);
  while (supervisor_ >= 0 && ::waitpid(supervisor_, nullptr, 0) < 0 && errno == EINTR) {
  }
  supervisor_ = socket_ = -1;
}

std::optional<ProgramEnd> Program::wait(int milliseconds) {
  if (end_) return end_;
  pollfd poll{.fd = socket_, .events = POLLIN, .revents = 0};
  if (::poll(&poll, 1, milliseconds) <= 0) return {};
  Report report;
  end_ = receive(socket_, report) ? end_of(report) : end_without_supervisor();
  return end_;
}

// PR_SET_PDEATHSIG has killed the program.
ProgramEnd Program::end_without_supervisor() const {
  return {.exit_code = 128 + SIGKILL,
          .signal = SIGKILL,
          .seconds = static_cast<double>(now_ns() - started_ns_) * 1e-9,
          .trouble = fmt::format(
              "'{}' was killed, because somebody killed the process of ridge that watches over it "
              "(pid {}); look for other processes that it may have left, and run it again",
              name_,
              supervisor_)};
}

void Program::send(int signal) const {
  if (socket_ >= 0 && !end_) give(socket_, {.kind = Order::kSend, .signal = signal});
}

void Program::interrupt() const {
  if (socket_ >= 0 && !end_) give(socket_, {.kind = Order::kInterrupt});
}

void Program::leave() {
  give(socket_, {.kind = Order::kLeave});
  ::close(socket_);
  supervisor_ = socket_ = -1;
}

}  // namespace ridge::attach
