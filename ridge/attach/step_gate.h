// The socket at which a third-party program is held between steps (shim/ridge_gate.py is its other
// end). The process that steps connects behind its first step and waits; packets of JSON:
//
//   {"hello":{"pid":123,"source":"optimizer"}}     it steps, and is held
//   {"go":20}                                      run for so many steps; "saves":true times those
//                                                  that save, from one such step to another
//   {"block":{"steps":20,"seconds":0.21, ...}}     it did, and is held again
//
// Of several processes that step the first one is held; the others run as without us.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ridge/base/descriptor.h"

namespace ridge::attach {

/// An interval that was no step, or several such in a row: loaders were iterated anew or ran empty
/// before that, something was saved, something was evaluated.
struct GateBreak {
  double seconds = 0;
  int64_t steps = 0;  ///< Steps that were made during the break all the same.
};

/// The process's measurement from an order to the end of the last step and until its loaders are
/// full again.
struct GateBlock {
  int64_t steps = 0;  ///< At least as many as were asked for; those in breaks do not count.
  double seconds = 0, waited_seconds = 0;  ///< Without breaks. Waited: for data.
  int64_t switches = 0;                    ///< Involuntary context switches.
  int64_t queue = 0;     ///< Batches that loaders have ready when they are full, or steps that make
                         ///< up a round where there is nothing but breaks.
  std::string source{};  ///< "optimizer" or "module": whose steps.
  std::vector<GateBreak> breaks{};
};

class StepGate {
 public:
  enum class Event : uint8_t {
    kNothing,  ///< Within the time that was given.
    kHeld,     ///< A process came: process(), source().
    kBlock,    ///< It has run: block().
    kGone,     ///< It has closed its end, or says what makes no sense: then trouble().
  };

  /// Listens in the folder of a shim. UserError where it cannot.
  explicit StepGate(const std::string& folder);

  /// Until something happens, `milliseconds` at most or until a signal.
  Event wait(int milliseconds);
  /// Lets the process run; wait() reports the outcome.
  void go(int64_t steps, bool with_saves = false);

  /// The process that is held or runs, by its own number; 0: none has come, or it is gone.
  pid_t process() const { return process_; }
  const std::string& source() const { return source_; }
  const GateBlock& block() const { return block_; }
  const std::string& trouble() const { return trouble_; }

 private:
  void accept_others();
  void refuse(Descriptor connection);
  Event receive();
  Event lose(std::string trouble);

  Descriptor listener_, connection_;
  bool is_known_ = false;  ///< It has said who it is.
  pid_t process_ = 0;
  std::string source_, trouble_;
  GateBlock block_;
};

}  // namespace ridge::attach
