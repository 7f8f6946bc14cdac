// Programs under a supervisor, for tests of Program, and what is left of them.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "ridge/attach/process/program.h"
#include "tests/support/comes.h"

namespace ridge::test {

/// `sh -c SCRIPT` under the ridge that was built.
inline attach::ProgramRequest shell(const std::string& script) {
  attach::ProgramRequest request;
  request.command = {"/bin/sh", "-c", script};
  request.supervisor = RIDGE_PROGRAM;
  return request;
}

/// Signals are heeded like in a terminal: who runs the tests may have had some ignored.
inline void heed_signals() {
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) std::signal(signal, SIG_DFL);
}

/// All of a file; empty where there is none.
inline std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The program's end, which has to come.
inline attach::ProgramEnd end_of(attach::Program& program) {
  std::optional<attach::ProgramEnd> end;
  if (!comes([&] { return (end = program.wait(1000)).has_value(); }))
    throw std::runtime_error("the program does not end");
  return *end;
}

inline attach::ProgramEnd run(const attach::ProgramRequest& request) {
  attach::Program program(request);
  return end_of(program);
}

/// The fields behind the name in /proc/PID/stat: "S 1 ..."; empty where there is no such process.
inline std::string stat_of(pid_t pid) {
  // One that ends while it is read is none: getline() does not throw then.
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t name = text.rfind(')');
  return name == std::string::npos ? "" : text.substr(name + 2);
}

/// Zombies do not: nobody may be there to wait for them.
inline bool is_alive(pid_t pid) {
  const std::string stat = stat_of(pid);
  return !stat.empty() && stat[0] != 'Z' && stat[0] != 'X';
}

inline pid_t parent_of(pid_t pid) { return std::stoi(stat_of(pid).substr(2)); }

/// Lines of a file as numbers of processes; waits until there are so many.
inline std::vector<pid_t> pids_in(const std::filesystem::path& path, size_t count) {
  std::vector<pid_t> pids;
  comes([&] {
    pids.clear();
    std::ifstream file(path);
    for (pid_t pid = 0; file >> pid;) pids.push_back(pid);
    return pids.size() >= count;
  });
  if (pids.size() < count) throw std::runtime_error("too few processes came: " + path.string());
  return pids;
}

/// Ends processes at its end, whatever a test thought of them.
class Ending {
 public:
  explicit Ending(std::vector<pid_t> pids) : pids_(std::move(pids)) {}
  Ending(const Ending&) = delete;
  Ending& operator=(const Ending&) = delete;
  ~Ending() {
    for (pid_t pid : pids_)
      if (is_alive(pid)) ::kill(pid, SIGKILL);
  }
  const std::vector<pid_t>& pids() const { return pids_; }
  bool all_gone() const {
    for (pid_t pid : pids_)
      if (is_alive(pid)) return false;
    return true;
  }

 private:
  std::vector<pid_t> pids_;
};

/// While it lives, a descriptor of this process is another file.
class Redirected {
 public:
  Redirected(int number, const std::filesystem::path& path, int flags)
      : number_(number), saved_(::fcntl(number, F_DUPFD_CLOEXEC, 100)) {
    const int file = ::open(path.c_str(), flags | O_CLOEXEC, 0600);
    if (file < 0 || saved_ < 0) throw std::runtime_error("cannot open " + path.string());
    ::dup2(file, number);
    ::close(file);
  }
  Redirected(const Redirected&) = delete;
  Redirected& operator=(const Redirected&) = delete;
  ~Redirected() {
    ::dup2(saved_, number_);
    ::close(saved_);
  }

 private:
  int number_, saved_;
};

}  // namespace ridge::test
