// A process of a program in Python that has imported the program's packages and runs none of it:
// it is forked where the program is to run (shim/ridge_parent.py is its other end). It connects
// once it has begun; packets of JSON:
//
//   {"ready":{"pid":123,"note":""}}   it may be forked; the note says why some packages are missing
//   {"refusal":"why"}                 it is not fit to be forked, or not for this start
//   {"start":"/path/start.json"}      to it, with three descriptors: fork
//   {"started":124}                   the process that execs the supervisor of the new program
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "ridge/attach/process/program.h"
#include "ridge/base/descriptor.h"

namespace ridge::attach {

class WarmParent {
 public:
  enum class State : uint8_t {
    kImporting,
    kReady,
    kGone,  ///< It is not fit to be forked, or has ended.
  };

  /// Listens in the folder of a shim. UserError where it cannot.
  explicit WarmParent(const std::string& folder);

  /// It was started so: programs that are forked differ from that by the shim's options alone.
  void started_as(const ProgramRequest& request) { request_ = request; }

  /// Reads what it has said by now, without waiting for it.
  State look();
  State state() const { return state_; }
  /// kGone: why. kReady: why some packages are imported by each program itself; empty: none is.
  const std::string& note() const { return note_; }

  /// Program::forked() of this process. nullptr: why().
  std::unique_ptr<Program> start(const ProgramRequest& request, const std::string& shim_folder);
  const std::string& why() const { return why_; }

 private:
  pid_t fork(const std::string& path, const std::array<int, 3>& descriptors);
  void receive();
  void lose(const std::string& note);

  ProgramRequest request_;
  Descriptor listener_, connection_;
  State state_ = State::kImporting;
  std::string note_, why_;
  pid_t started_ = 0;  ///< Outcome of the last fork.
};

}  // namespace ridge::attach
