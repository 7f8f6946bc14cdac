// The processes that descend from one.
#pragma once

#include <sys/types.h>

#include <vector>

namespace ridge::attach {

/// Lists the descendants of `root` (0: of this process) in /proc, parents before their children.
/// The list is not taken in one moment: a process whose parent ends meanwhile may be missing.
std::vector<pid_t> descendants(pid_t root = 0);

/// Whether a process that was sent SIGSTOP executes nothing of its own any more: each of its
/// threads has stopped, has ended, or waits in the kernel, from where it goes nowhere but to a
/// stop. Sending does not wait for that, and a thread that is ready to run may start a process
/// meanwhile.
bool has_stopped(pid_t pid);

/// Removes the folder, with all it holds and through no link, if it is one of ours: called
/// "ridge-..." and owned by the user.
void remove_our_folder(const char* path);

}  // namespace ridge::attach
