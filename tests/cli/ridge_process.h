// The built program as a user runs it: a process of its own, with a time limit.
#pragma once

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace ridge::test {

inline std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// How it ended; `code` is minus the signal's number where one ended it.
struct Ended {
  int code;
  std::string out, err;
};

class RidgeProcess {
 public:
  /// Starts `ridge WORDS` in `folder`. `shell` is what a shell does before: "ulimit -f 100;".
  RidgeProcess(const std::filesystem::path& folder,
               std::vector<std::string> words,
               const std::string& shell = {},
               const std::string& program = RIDGE_PROGRAM)
      : folder_(folder) {
    words.insert(words.begin(), {"/bin/sh", "-c", shell + " exec \"$0\" \"$@\"", program});
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addchdir_np(&files, folder.c_str());
    constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC;
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, ".out", kFlags, 0600);
    posix_spawn_file_actions_addopen(&files, STDERR_FILENO, ".err", kFlags, 0600);
    // Whatever the parent ignores, the child starts as from a terminal.
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t all;
    sigfillset(&all);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    const int error = posix_spawn(&pid_, "/bin/sh", &files, &attributes, argv.data(), environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    if (error != 0) throw std::runtime_error("cannot start the program");
  }
  RidgeProcess(const RidgeProcess&) = delete;
  RidgeProcess& operator=(const RidgeProcess&) = delete;
  ~RidgeProcess() {
    if (pid_ > 0) end(SIGKILL);
  }

  void send(int signal) const { ::kill(pid_, signal); }
  /// The text on stderr by now.
  std::string err() const { return text_of(folder_ / ".err"); }
  /// The text on stdout by now.
  std::string out() const { return text_of(folder_ / ".out"); }
  /// Sets the limit of all waiting below, beyond which a process hangs; it is four minutes at
  /// first.
  void set_limit(std::chrono::seconds limit) { limit_ = limit; }
  /// Waits until stderr holds `text`; false when it has ended or the limit is over.
  bool says(const std::string& text) {
    return comes([&] { return err().find(text) != std::string::npos; });
  }
  /// Waits until `condition` holds; false when the process has ended or the limit is over.
  template <typename Condition>
  bool comes(Condition condition) {
    for (const auto start = std::chrono::steady_clock::now();
         !is_over_ && std::chrono::steady_clock::now() - start < limit_;) {
      if (condition()) return true;
      is_over_ = ::waitpid(pid_, &status_, WNOHANG) == pid_;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return condition();
  }
  /// Waits for the end; a process that takes more than the limit is killed, and its code is -9.
  Ended wait() {
    comes([] { return false; });
    return end(is_over_ ? 0 : SIGKILL);
  }

 private:
  Ended end(int signal) {
    if (!is_over_) {
      ::kill(pid_, signal);
      ::waitpid(pid_, &status_, 0);
    }
    pid_ = -1;
    const int code = WIFEXITED(status_) ? WEXITSTATUS(status_) : -WTERMSIG(status_);
    return {code, text_of(folder_ / ".out"), err()};
  }

  std::filesystem::path folder_;
  pid_t pid_ = -1;
  int status_ = 0;
  bool is_over_ = false;
  std::chrono::seconds limit_{240};
};

/// `ridge WORDS` from start to end.
inline Ended ridge(const std::filesystem::path& folder,
                   const std::vector<std::string>& words,
                   const std::string& shell = {}) {
  return RidgeProcess(folder, words, shell).wait();
}

}  // namespace ridge::test
