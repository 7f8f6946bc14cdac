// Where a command of the user's may write when Ridge runs it again and again: into a folder of its
// own, into a private copy of the working folder, or, where the user said so, where it always does.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ridge/attach/program.h"

namespace ridge::attach {

/// A command in which `{out}` stands for a folder of each run's own and `{steps}` for how many
/// steps it is to make; both may stand within a word, `{{` and `}}` are braces.
class CommandTemplate {
 public:
  /// UserError for no words, and for another name in braces that is near one of these.
  explicit CommandTemplate(std::vector<std::string> words);

  const std::vector<std::string>& words() const { return words_; }
  bool has_out() const { return has_out_; }
  bool has_steps() const { return has_steps_; }
  /// With both put in.
  std::vector<std::string> filled(const std::string& out, int64_t steps) const;
  /// As a shell would read it.
  std::string text() const;

 private:
  std::vector<std::string> words_;
  bool has_out_ = false, has_steps_ = false;
};

/// What the user allows.
enum class Consent : uint8_t {
  kOut,      ///< The command names {out}: what it writes goes there.
  kSandbox,  ///< Each run sees the working folder in a private state of its own.
  kRerun,    ///< It may run as it is, over what it wrote before.
};

/// UserError, with the three ways out, where the command has no {out} and neither flag was given.
Consent consent_to(const CommandTemplate& command, bool sandbox, bool rerun);

/// The place of one run. What it made is removed with it, and, where this process was killed, by
/// the next Workplace.
class Workplace {
 public:
  /// UserError where kSandbox is asked for and the system has no way to it (says which ways were
  /// tried and why each failed).
  Workplace(const CommandTemplate& command, Consent consent);
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;
  ~Workplace();

  /// Fills in the command, and where it is to run.
  void place(ProgramRequest& request, int64_t steps) const;
  /// What the command's standard streams are written to when place() was asked to keep them.
  const std::string& output_path() const { return output_path_; }
  /// How the runs are kept apart, for the report: "an overlay of the working folder", ...
  const std::string& how() const { return how_; }

 private:
  const CommandTemplate& command_;
  Consent consent_;
  std::string folder_, output_path_, how_;
};

}  // namespace ridge::attach
