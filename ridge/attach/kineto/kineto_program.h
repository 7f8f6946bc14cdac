// A running program that libkineto shall trace, as /proc shows it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace ridge::attach {

class KinetoProgram {
 public:
  /// UserError where it cannot be asked: no such process, another user's, no PyTorch in it (names
  /// those below it that have it), started without KINETO_USE_DAEMON, in another namespace.
  explicit KinetoProgram(pid_t pid);

  pid_t pid() const { return pid_; }
  /// "process 123 (train.py)"
  const std::string& name() const { return name_; }
  /// False once it has ended, though another process may have its number by then.
  bool is_running() const;
  /// Whether it has been stopped by a signal (SIGSTOP, Ctrl-Z).
  bool is_stopped() const;
  /// Whether it has the file open; false where we may not know.
  bool has_open(const std::string& path) const;
  /// The folder that its libkineto may write to: no other is taken from a daemon.
  const std::string& trace_folder() const { return trace_folder_; }
  /// The folder in which its libkineto looks for sockets; empty: it uses abstract names.
  const std::string& socket_folder() const { return socket_folder_; }
  /// Processes below it that have a libkineto of their own, as ranks have.
  std::vector<pid_t> others_below() const;

 private:
  void read_environment();
  void check_reach() const;

  pid_t pid_;
  int64_t start_ticks_ = 0;
  std::string name_;
  std::string trace_folder_ = "/tmp", socket_folder_;
  bool wants_daemon_ = false;
};

}  // namespace ridge::attach
