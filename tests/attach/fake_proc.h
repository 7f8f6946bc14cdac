// A folder as /proc is, with processes of which every number is known.
#pragma once

#include <fmt/format.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "tests/support/temp_folder.h"

namespace ridge::attach {

/// Fields of a line of `stat`; a tick is a hundredth of a second, as on all Linux systems.
struct FakeStat {
  pid_t parent = 1;
  std::string name = "python";
  char state = 'S';
  int64_t minor_faults = 123, major_faults = 0, user_ticks = 0, system_ticks = 0, waited_ticks = 0;
  int64_t threads = 1, start = 5000, rss_pages = 0;
};

/// The line as proc_pid_stat(5) has it: 52 fields.
inline std::string stat_line(pid_t pid, const FakeStat& stat) {
  const std::string first = fmt::format("{} ({}) {} {} 7 7 34816 -1 4194304 {} 456 {} 9",
                                        pid,
                                        stat.name,
                                        stat.state,
                                        stat.parent,
                                        stat.minor_faults,
                                        stat.major_faults);
  const std::string second = fmt::format("{} {} {} 0 20 0 {} 0 {} 999999999 {}",
                                         stat.user_ticks,
                                         stat.system_ticks,
                                         stat.waited_ticks,
                                         stat.threads,
                                         stat.start,
                                         stat.rss_pages);
  std::string line = first + " " + second + " 18446744073709551615";
  for (int i = 26; i <= 52; ++i) line += " 140724044253853";
  return line + "\n";
}

class FakeProc {
 public:
  std::string path() const { return folder_.path().string(); }

  void write(const std::string& name, const std::string& text) const {
    std::error_code ignored;  // a test may have put something else in the place of a folder
    std::filesystem::create_directories((folder_ / name).parent_path(), ignored);
    // Opening a pipe would wait for a reader.
    if (std::filesystem::is_fifo(folder_ / name, ignored)) remove(name);
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  void remove(const std::string& name) const {
    std::error_code ignored;
    std::filesystem::remove_all(folder_ / name, ignored);
  }

  /// The process, and its main thread with the same numbers.
  void process(pid_t pid, const FakeStat& stat) const {
    write(fmt::format("{}/stat", pid), stat_line(pid, stat));
    thread(pid, pid, stat);
  }
  void thread(pid_t pid, pid_t thread, const FakeStat& stat) const {
    write(fmt::format("{}/task/{}/stat", pid, thread), stat_line(thread, stat));
  }
  /// Nanoseconds that a thread ran, and waited for a processor.
  void schedule(pid_t pid, pid_t thread, int64_t ran, int64_t waited) const {
    write(fmt::format("{}/task/{}/schedstat", pid, thread), fmt::format("{} {} 17\n", ran, waited));
  }
  void io(pid_t pid, int64_t read, int64_t written) const {
    write(fmt::format("{}/io", pid),
          fmt::format("rchar: 77\nwchar: 88\nsyscr: 1\nsyscw: 1\nread_bytes: {}\n"
                      "write_bytes: {}\ncancelled_write_bytes: 5\n",
                      read,
                      written));
  }

 private:
  test::TempFolder folder_;
};

}  // namespace ridge::attach
