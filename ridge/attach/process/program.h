// A third-party program under a supervisor: whatever ends this process, nothing of it is left
// behind.
//
// Between this process and the program stands a small one of ours (`ridge supervise`): it adopts
// what the program leaves (PR_SET_CHILD_SUBREAPER), hears of our end by a pipe that closes, ends
// all there is then, and removes our folders. A program that ends by itself keeps the
// processes that it wants to leave running.
#pragma once

#include <sys/types.h>

#include <array>
#include <csignal>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ridge/attach/folders/sandbox.h"
#include "ridge/base/error.h"

namespace ridge::attach {

struct ProgramRequest {
  std::vector<std::string> command;  ///< The program, found by PATH, and its arguments.
  /// Set in its environment, over what is there.
  std::vector<std::pair<std::string, std::string>> environment{};
  /// Ours, called "ridge-...": removed by the supervisor if this process ends without ~Program,
  /// which leaves them to the caller.
  std::vector<std::string> folders{};
  /// The program's working folder; empty: ours.
  std::string working_folder{};
  /// Replaces some folders for the program, its working folder first; without any it replaces none.
  Sandbox sandbox{};
  /// Paths of a folder that its words and its environment name, and what they are there instead.
  std::vector<std::pair<std::string, std::string>> moved{};
  /// A file for its stdout and stderr, emptied first; its stdin is empty then. Or empty: it has our
  /// streams.
  std::string output{};
  /// The executable of the supervisor, which is ridge itself.
  std::string supervisor = "/proc/self/exe";
};

/// The program could not be started.
class ProgramError : public UserError {
 public:
  ProgramError(int exit_code, const std::string& message, const std::string& fix)
      : UserError(message, fix), exit_code_(exit_code) {}
  /// The code that a shell gives: 127 for no such program, 126 for one that cannot be executed.
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

/// How a program ended.
struct ProgramEnd {
  int exit_code = 0;  ///< The code that a shell gives: 128 + the signal that ended it.
  int signal = 0;     ///< The signal that ended it; 0: none.
  double seconds = 0;
  int64_t peak_rss_bytes = 0;  ///< Peak of its largest process that was waited for.
  /// For the user, where somebody killed the supervisor: the system has then killed the program,
  /// though not what that had started.
  std::string trouble{};
};

class Program {
 public:
  /// Starts it with our stdin, stdout, stderr and working folder, where the request does not say
  /// otherwise, and with signals as we got them. ProgramError where there is no such program or it
  /// cannot be executed; UserError for a working folder or an output that cannot be had.
  explicit Program(const ProgramRequest& request);
  /// Has a process forked as the file at `path` describes it, with the supervisor's socket, and the
  /// program's stdin and output. Returns its supervisor, or 0 where there is none.
  using ForkOrder =
      std::function<pid_t(const std::string& path, const std::array<int, 3>& descriptors)>;
  /// Starts a program in Python by a fork of one that was started by the request `parent`, with the
  /// same command and environment but for the options of the shim, whose folder for this program is
  /// `shim_folder`. nullptr where it cannot, as for one with a sandbox, which is mounted by who
  /// execs. UserError for a working folder or an output that cannot be had.
  static std::unique_ptr<Program> forked(const ProgramRequest& request,
                                         const ProgramRequest& parent,
                                         const std::string& shim_folder,
                                         const ForkOrder& order);
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  /// Ends the program if it still runs, and all that descends from it: by SIGTERM, and by SIGKILL
  /// two seconds later.
  ~Program();

  /// The process of the program itself.
  pid_t pid() const { return pid_; }
  /// Waits for its end, for `milliseconds` at most (-1: no limit) or until a signal arrives; empty:
  /// it runs.
  std::optional<ProgramEnd> wait(int milliseconds);
  /// Sends a signal to the program alone, as `kill` does. What a program leaves running that one of
  /// SIGINT, SIGTERM, SIGHUP, SIGQUIT and SIGKILL came to is ended too, after it.
  void send(int signal) const;
  /// Sends SIGINT to the program and all that descends from it, as the key of a terminal does: a
  /// shell that waits for what it started heeds one to itself alone only after that. SIGTERM where
  /// this process was started with SIGINT ignored, as then the program was.
  void interrupt() const;
  /// Leaves the program running when this process ends, with its supervisor, which ends what the
  /// program started after it if it was asked to end by then. Nothing else may be called after it.
  void leave();
  /// Stops the program and all that descends from it, so that they use no processor, until go_on()
  /// or ~Program.
  void hold();
  void go_on();
  /// Ends by SIGKILL all that descends from the program, also what one that has ended by itself
  /// wants to leave running.
  void kill_all() const;

 private:
  friend class ProgramSignals;
  Program() = default;
  void await_start(const ProgramRequest& request);
  ProgramEnd end_without_supervisor() const;
  void end_supervisor();

  std::string name_;
  pid_t supervisor_ = -1, pid_ = -1;
  int socket_ = -1;
  int64_t started_ns_ = 0;
  std::optional<ProgramEnd> end_;
  std::vector<pid_t> held_;
};

/// Runs `ridge supervise` with the words that Program gave it (program_protocol.h); returns its
/// exit code. For a process of one thread that does nothing else.
int supervise(const std::vector<std::string>& words);

/// While it lives, SIGINT, SIGTERM, SIGHUP and SIGQUIT do not end this process but are for the
/// program: one that a terminal sent has reached it already, one that a process sent to us alone is
/// sent on. The third SIGINT or SIGTERM ends the program with SIGKILL. One that was ignored stays
/// ignored, as nohup wants it. Not for more than one object at a time.
class ProgramSignals {
 public:
  explicit ProgramSignals(const Program& program);
  ProgramSignals(const ProgramSignals&) = delete;
  ProgramSignals& operator=(const ProgramSignals&) = delete;
  ~ProgramSignals();
  /// How many have come by now.
  int count() const;

 private:
  struct sigaction before_[4];
};

}  // namespace ridge::attach
