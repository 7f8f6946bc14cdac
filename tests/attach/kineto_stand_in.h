// A process that behaves as a PyTorch program with libkineto does, for as much as a daemon sees.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>

namespace ridge::test {

/// Ways of answering a request to record.
enum class OnRequest { kWrites, kWritesHalf, kWritesNothing, kEnds };

struct StandIn {
  std::string socket{};          ///< The abstract name that it calls.
  std::filesystem::path home{};  ///< Folder of its libtorch.
  bool has_torch = true, has_client = true, calls = true, is_busy = false;
  OnRequest on_request = OnRequest::kWrites;
  int32_t says_pid = 0;  ///< 0: its own.
};

/// A child of this process, killed with it or with the object.
class ChildProcess {
 public:
  explicit ChildProcess(const std::function<int()>& body) {
    pid_ = ::fork();
    if (pid_ < 0) throw std::runtime_error("cannot fork");
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    int code = 99;
    try {
      code = body();
    } catch (...) {
    }
    ::_exit(code);
  }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  ~ChildProcess() { end(SIGKILL); }

  pid_t pid() const { return pid_; }
  void send(int signal) const { ::kill(pid_, signal); }
  /// Sends the signal (0: none), waits; the exit code, or minus the signal that ended it.
  int end(int signal) {
    if (pid_ <= 0) return code_;
    if (signal != 0) ::kill(pid_, signal);
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return code_ = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  }
  /// Waits until it has ended, but leaves it as a zombie.
  void become_zombie() const {
    siginfo_t info;
    ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
  }

 private:
  pid_t pid_ = -1;
  int code_ = 0;
};

inline sockaddr_un abstract_name(const std::string& name, socklen_t& bytes) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  bytes = static_cast<socklen_t>(sizeof(sa_family_t) + name.size() + 2);
  return address;
}

/// A datagram socket with that abstract name; without a name where it is empty.
inline int bound_socket(const std::string& name) {
  const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  socklen_t bytes = 0;
  const sockaddr_un address = abstract_name(name, bytes);
  if (!name.empty() && ::bind(socket, reinterpret_cast<const sockaddr*>(&address), bytes) != 0)
    throw std::runtime_error("cannot bind " + name);
  return socket;
}

inline bool send_to(int socket, const std::string& name, const std::string& datagram) {
  socklen_t bytes = 0;
  const sockaddr_un address = abstract_name(name, bytes);
  return ::sendto(socket,
                  datagram.data(),
                  datagram.size(),
                  MSG_DONTWAIT | MSG_NOSIGNAL,
                  reinterpret_cast<const sockaddr*>(&address),
                  bytes) >= 0;
}

/// A message as libkineto lays it out.
inline std::string kineto_datagram(const std::string& type, const std::string& payload) {
  std::string text(40, '\0');
  const uint64_t size = payload.size();
  std::memcpy(text.data(), &size, 8);
  std::memcpy(text.data() + 8, type.data(), type.size());
  return text + payload;
}
template <typename... Numbers>
std::string packed(Numbers... numbers) {
  std::string text;
  (text.append(reinterpret_cast<const char*>(&numbers), sizeof(numbers)), ...);
  return text;
}

/// Four steps of a small trace, as libkineto writes it.
inline std::string small_trace(bool is_whole) {
  std::string text = R"({"schemaVersion": 1, "traceEvents": [)";
  for (int step = 0; step < 4; ++step) {
    const std::string at = std::to_string(step * 1000);
    text += R"({"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#)" +
            std::to_string(step) + R"(", "pid": 1, "tid": 1, "ts": )" + at + R"(, "dur": 990},)";
    text += R"({"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": )" + at +
            R"(.5, "dur": 900},)";
  }
  text.back() = ']';
  return is_whole ? text + R"(, "traceName": "t"})" : text.substr(0, text.size() / 2) + "}, ";
}

namespace stand_in {

inline void map_torch(const StandIn& plan) {
  const std::filesystem::path library =
      plan.home / ("libtorch_cpu.so." + std::to_string(::getpid()));
  std::ofstream(library) << std::string(4096, 'x');
  const int file = ::open(library.c_str(), O_RDONLY | O_CLOEXEC);
  ::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE, file, 0);
  ::close(file);
}

/// Adds one to a number that others read as the size of a file.
inline void count(const std::filesystem::path& home, const std::string& name) {
  std::ofstream(home / (name + std::to_string(::getpid())), std::ios::app) << "x";
}

inline const std::string kLogFile = "ACTIVITIES_LOG_FILE=";

inline void record(const std::string& config, OnRequest on_request) {
  const std::string& key = kLogFile;
  const size_t begin = config.find(key) + key.size();
  std::string file = config.substr(begin, config.find('\n', begin) - begin);
  if (on_request == OnRequest::kEnds) ::_exit(7);
  if (on_request == OnRequest::kWritesNothing) return;
  file = file.substr(0, file.rfind(".json")) + "_" + std::to_string(::getpid()) + ".json";
  std::ofstream(file + ".tmp") << small_trace(on_request == OnRequest::kWrites);
  std::filesystem::rename(file + ".tmp", file);
}

}  // namespace stand_in

/// Its body: runs until it is killed. The exit code is 7 for OnRequest::kEnds.
inline int run_stand_in(const StandIn& plan) {
  if (plan.has_torch) stand_in::map_torch(plan);
  const std::string own =
      (plan.has_client ? "dynoconfigclient" : "other") + plan.socket + std::to_string(::getpid());
  const int socket = bound_socket(own);
  const timeval patience{.tv_sec = 0, .tv_usec = 20000};
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  const int32_t pid = plan.says_pid != 0 ? plan.says_pid : ::getpid();
  std::ofstream(plan.home / ("ready" + std::to_string(::getpid()))) << "ready";
  bool has_registered = false;
  while (true) {
    if (!plan.calls) {
      ::usleep(10000);
      continue;
    }
    const std::string message =
        has_registered
            ? kineto_datagram(
                  "req",
                  packed(int32_t{plan.is_busy ? 1 : 3}, int32_t{2}, int64_t{0}, pid, int32_t{1}))
            : kineto_datagram("ctxt", packed(int32_t{0}, pid, int64_t{0}));
    if (send_to(socket, plan.socket, message)) {
      char buffer[8192];
      const ssize_t got = ::recv(socket, buffer, sizeof(buffer), 0);
      const std::string config(buffer + 40, got > 40 ? static_cast<size_t>(got) - 40 : 0);
      // The answer to the registration can come late, in the place of one to a request.
      if (got > 0) stand_in::count(plan.home, "answered");
      const bool is_asked = config.find(stand_in::kLogFile) != config.npos;
      if (is_asked) stand_in::record(config, plan.on_request);
      if (is_asked) stand_in::count(plan.home, "asked");
      has_registered = true;
    }
    ::usleep(10000);
  }
}

/// Starts one, and waits until it is what it shall be.
class StandInProcess : public ChildProcess {
 public:
  explicit StandInProcess(const StandIn& plan)
      : ChildProcess([&] { return run_stand_in(plan); }), home_(plan.home) {
    const auto ready = home_ / ("ready" + std::to_string(pid()));
    for (int i = 0; i < 12'000 && !std::filesystem::exists(ready); ++i) ::usleep(5000);
  }
  /// How many configurations a process of this number has got.
  size_t times_asked() const { return counted("asked"); }
  /// How many answers it has got, of any kind; the first is to its registration.
  size_t times_answered() const { return counted("answered"); }

 private:
  size_t counted(const std::string& name) const {
    std::error_code none;
    const auto size = std::filesystem::file_size(home_ / (name + std::to_string(pid())), none);
    return none ? 0 : size;
  }

  std::filesystem::path home_;
};

}  // namespace ridge::test
