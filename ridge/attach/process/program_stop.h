// How a program is asked to end: again where that goes unheard, and not for ever.
//
// One signal may be lost. CPython drops the KeyboardInterrupt of a SIGINT that arrives while a
// callback of its garbage collector or a destructor runs, and a program may catch it where it did
// not mean to; then training goes on. Yet a second one is no help to a program that heeds the
// first: it can cut off what is saved at the end. So a program that still makes steps is asked
// again after two seconds, four, eight and so on, and one that makes none after a minute.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace ridge::attach {

class Program;

class ProgramStop {
 public:
  /// Asks for the first time (Program::interrupt) at `now_ns`, nanoseconds of a steady clock, as
  /// below. `program` has to outlive this object. After `limit_seconds` it is asked no more.
  ProgramStop(const Program& program, int64_t now_ns, double limit_seconds);

  /// Asks again where that is due. The caller calls it some times a second while the program runs.
  /// `steps` is the number of steps of the process that has made most. Returns false when the limit
  /// is over: the program does not end.
  bool look(int64_t now_ns, int64_t steps);

  /// How often it was asked.
  int asked() const { return asked_; }
  /// Says which process runs on, what was tried, and how the user ends it.
  std::string text() const;

 private:
  void ask(int64_t now_ns);

  const Program& program_;
  int64_t first_ns_, last_ns_ = 0;
  double limit_seconds_, pause_seconds_;
  int asked_ = 0;
  /// Steps when what was under way at the last request had ended; nothing: it may be yet.
  std::optional<int64_t> steps_{};
};

}  // namespace ridge::attach
