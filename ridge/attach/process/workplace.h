// The places where a command of the user's may write when Ridge runs it again and again: a folder
// of its own, a private copy of the working folder, or, if the user said so, where it always
// writes.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ridge/attach/folders/private_folder.h"
#include "ridge/attach/process/command_template.h"
#include "ridge/attach/process/program.h"

namespace ridge::attach {

/// How kSandbox is to be kept. All but the first are for tests.
enum class SandboxWay : uint8_t {
  kAny,          ///< The first that the system allows, in this order:
  kOverlay,      ///< Needs the right to mount.
  kUserOverlay,  ///< Needs the right to make a user namespace.
  kCopy,         ///< Always possible, for at most kMostCopiedBytes.
};

/// The place of one run. What it made is removed with it, and, where this process was killed, by
/// the supervisor or the next Workplace.
class Workplace {
 public:
  /// UserError where kSandbox is asked for and the system has no way to it (says which ways were
  /// tried and why each failed).
  Workplace(const CommandTemplate& command, Consent consent, SandboxWay way = SandboxWay::kAny);

  /// Fills in the command, where it is to run, the file for its output, and the folder that is to
  /// be removed; leaves all else of the request as it is.
  void place(ProgramRequest& request, int64_t steps) const;
  /// File that takes the command's standard streams.
  std::string output_path() const { return folder_.path() + "/output"; }
  /// How the runs are kept apart, for the report, and what is not: "each run writes ...".
  const std::string& how() const { return how_; }

 private:
  void keep_apart(SandboxWay way);
  /// Why it cannot be; empty: it is.
  std::string take_overlay(const std::string& folder, bool in_user_namespace);
  std::string take_copy(const std::string& folder, const std::string& why);

  CommandTemplate command_;
  PrivateFolder folder_;
  Sandbox sandbox_;
  std::string copy_, how_;
  std::vector<std::pair<std::string, std::string>> moved_;
};

}  // namespace ridge::attach
