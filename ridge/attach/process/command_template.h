// A command of the user's that Ridge runs again and again, and what the user allows for it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ridge::attach {

/// A command in which `{out}` stands for a folder of each run's own and `{steps}` for how many
/// steps it is to make; both may stand within a word, and `{{out}}` is the text "{out}". All else
/// in braces stays as it is, JSON and the `${out}` of a shell included.
class CommandTemplate {
 public:
  /// UserError for no words, and for another name in braces that looks like one of these.
  explicit CommandTemplate(std::vector<std::string> words);

  const std::vector<std::string>& words() const { return words_; }
  bool has_out() const { return has_out_; }
  bool has_steps() const { return has_steps_; }
  /// With both put in.
  std::vector<std::string> filled(const std::string& out, int64_t steps) const;
  /// The command as a shell would read it.
  std::string text() const;

 private:
  std::vector<std::string> words_;
  bool has_out_ = false, has_steps_ = false;
};

/// Ways of running the command again that the user may allow.
enum class Consent : uint8_t {
  kOut,      ///< The command names {out}: what it writes goes there.
  kSandbox,  ///< Each run sees the working folder in a private state of its own.
  kRerun,    ///< It may run as it is, over what it wrote before.
};

/// UserError, with the three ways out, where the command has no {out} and neither flag was given;
/// another one where both were.
Consent consent_to(const CommandTemplate& command, bool sandbox, bool rerun);

}  // namespace ridge::attach
