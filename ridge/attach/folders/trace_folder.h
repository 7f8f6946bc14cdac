// A private folder that is gone when we are, however we end.
#pragma once

#include <sys/types.h>

#include <string>

namespace ridge::attach {

/// A small process of ours waits for our end, and removes the folder if we did not: SIGKILL gives
/// us no chance to.
class TraceFolder {
 public:
  /// Makes "PARENT/ridge-attach-PID-XXXXXX", for this user alone. `companion`, a file's path or
  /// empty, is removed with it after a sudden end. UserError where it cannot be made.
  explicit TraceFolder(const std::string& parent, const std::string& companion = {});
  TraceFolder(TraceFolder&& other) noexcept;
  TraceFolder& operator=(TraceFolder&&) = delete;
  ~TraceFolder();

  const std::string& path() const { return path_; }

 private:
  void watch(const std::string& companion);

  std::string path_;
  pid_t watcher_ = -1;
  int pipe_ = -1;
};

}  // namespace ridge::attach
