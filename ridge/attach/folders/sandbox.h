// Overlays over folders, seen by one program alone: it writes where it likes in them, and the
// folders stay as they were. They live in a mount namespace of the program's own and end with it.
#pragma once

#include <string>
#include <vector>

namespace ridge::attach {

struct Sandbox {
  /// Overlaid, each with what is mounted beneath it behind it; the program runs in the first. None:
  /// no sandbox.
  std::vector<std::string> folders{};
  /// Ours, and in none of those: what is written into folder N goes to N/upper in it.
  std::string state{};
  /// True for users who may not mount: in a user namespace, with the ids kept.
  bool in_user_namespace = false;
};

/// The stage at which entering a sandbox failed, and its errno.
struct SandboxTrouble {
  enum Stage : int {
    kNone,
    kUserNamespace,
    kIds,
    kMountNamespace,
    kPrivate,
    kState,
    kFolder,
    kMount,
    kReadOnly,
  };
  int stage = kNone, error = 0;

  /// "cannot mount it: Operation not permitted"
  std::string text() const;
};

/// Makes the state in `parent` for the working folder and all that is mounted in it. UserError
/// where some of it can have no overlay.
Sandbox make_sandbox(const std::string& folder, const std::string& parent, bool in_user_namespace);

/// Puts this process into it, for good; it may have one thread only. Safe after fork().
SandboxTrouble enter_sandbox(const Sandbox& sandbox);

/// Enters it in a child process that ends at once, and returns the result.
SandboxTrouble try_sandbox(const Sandbox& sandbox);

}  // namespace ridge::attach
