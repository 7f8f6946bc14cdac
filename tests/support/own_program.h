// A program with a state of its own, for tests where nothing is shared.
#pragma once

#include <utility>

#include "ridge/run/program.h"

namespace ridge::test {

class OwnState {
 protected:
  explicit OwnState(Backend& backend) : own_(backend) {}
  State own_;
};

class OwnProgram : private OwnState, public Program {
 public:
  explicit OwnProgram(ProgramGraphs graphs, Backend& backend, const ProgramOptions& options = {})
      : OwnState(backend), Program(std::move(graphs), own_, options) {}
};

}  // namespace ridge::test
