// A program that is stopped for a while, with all its processes.
#include <algorithm>

#include "ridge/attach/program.h"
#include "ridge/attach/supervise_tree.h"

namespace ridge::attach {

void Program::hold() {
  if (supervisor_ < 0 || end_) return;
  // Who is stopped starts no other process: all are when a look finds nobody new.
  for (bool is_any_new = true; is_any_new;) {
    is_any_new = false;
    for (pid_t pid : descendants(supervisor_)) {
      if (std::ranges::find(held_, pid) != held_.end()) continue;
      ::kill(pid, SIGSTOP);
      held_.push_back(pid);
      is_any_new = true;
    }
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
