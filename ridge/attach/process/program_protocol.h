// Messages between a Program and its supervisor, over a socket that keeps their bounds. If
// Program's end closes without kFinish or kLeave, ridge is gone.
//
// The words of `ridge supervise`: the socket's number, a program that it adopts (its process, and
// the pipe at which that waits; 0 and 0: it starts one), descriptors that the program inherits
// ("3,7", or nothing), how many folders there are to remove and which, the sandbox (how many
// folders and which, its state, 1 for a user namespace), and the program with its arguments.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "ridge/attach/folders/sandbox.h"

namespace ridge::attach {

/// Instructions of the supervisor at its start.
struct SupervisorTask {
  int socket = -1;
  /// The program is a child already (warm_parent.h), and waits for a byte at the other end of a
  /// pipe; 0: it is to be started.
  pid_t adopted = 0;
  int pipe = -1;
  std::vector<int> inherited{};
  std::vector<std::string> folders{};
  Sandbox sandbox{};
  std::vector<std::string> command{};

  std::vector<std::string> words() const;
  /// The words behind those of `socket`, `adopted` and `pipe`, which the process says that execs
  /// the supervisor.
  std::vector<std::string> words_of_adopter() const;
  /// UserError for words that did not come from ridge.
  static SupervisorTask of(const std::vector<std::string>& words);
};

/// From ridge.
struct Order {
  enum Kind : int32_t {
    kSend,       ///< `signal` is for the program.
    kInterrupt,  ///< SIGINT, or SIGTERM, for the program and all that descends from it.
    kRelay,   ///< `sender` sent `signal` to ridge: it is for the program, if that has not got it.
    kFinish,  ///< All that runs is to end; ridge sees to the folder.
    kLeave,   ///< Ridge goes and the program does not; ridge sees to the folder.
  };
  Kind kind = kSend;
  int32_t signal = 0;
  pid_t sender = 0;
};

/// From the supervisor.
struct Report {
  enum Kind : int32_t {
    kStarted,  ///< `pid` runs.
    kFailed,   ///< It could not be started: `error`, with `stage` where its sandbox failed.
    kEnded,    ///< With `status`, as wait() has it, after `lifetime_ns`.
  };
  Kind kind = kStarted;
  pid_t pid = 0;
  int32_t error = 0, stage = 0, status = 0;
  int64_t peak_rss_bytes = 0, lifetime_ns = 0;
};

}  // namespace ridge::attach
