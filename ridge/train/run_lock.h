// One run at a time writes to a folder.
#pragma once

#include <string>

namespace ridge {

/// Makes the folder and holds it until the end of the object or of the process, however it ends.
class RunLock {
 public:
  /// UserError when the folder cannot be made, or another run holds it. Where the file system knows
  /// no locks, nobody is kept out.
  explicit RunLock(const std::string& folder);
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;
  ~RunLock();

 private:
  int descriptor_;
};

}  // namespace ridge
