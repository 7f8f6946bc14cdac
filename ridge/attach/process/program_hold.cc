// A program that is stopped for a while, with all its processes.
#include <algorithm>
#include <chrono>
#include <thread>

#include "ridge/attach/process/program.h"
#include "ridge/attach/process/supervise_tree.h"

namespace ridge::attach {

void Program::hold() {
  if (supervisor_ < 0 || end_) return;
  // A stopped process starts no other one: a scan that then finds none new has found all.
  constexpr int kMostWaits = 1000;
  bool is_any_new = true, had_stopped = false;
  for (int waits = 0; is_any_new || !had_stopped;) {
    had_stopped = waits == kMostWaits || std::ranges::all_of(held_, has_stopped);
    is_any_new = false;
    for (pid_t pid : descendants(supervisor_)) {
      if (std::ranges::find(held_, pid) != held_.end()) continue;
      ::kill(pid, SIGSTOP);
      held_.push_back(pid);
      is_any_new = true;
    }
    if (had_stopped || is_any_new) continue;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ++waits;
  }
}

// None of them can have ended by itself since: who has their numbers is who was stopped.
void Program::go_on() {
  for (pid_t pid : held_) ::kill(pid, SIGCONT);
  held_.clear();
}

void Program::kill_all() const {
  if (supervisor_ < 0) return;
  for (pid_t pid : descendants(supervisor_)) ::kill(pid, SIGKILL);
}

}  // namespace ridge::attach
