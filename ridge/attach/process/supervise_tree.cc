#include "ridge/attach/process/supervise_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <unordered_map>

#include "ridge/attach/folders/private_folder.h"
#include "ridge/attach/samples/proc_files.h"

namespace ridge::attach {
namespace {

/// 0 where the process is gone. Its name, in brackets, may hold anything, brackets included.
pid_t parent_of(pid_t pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/stat";
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  std::array<char, 512> text{};
  ssize_t got = -1;
  do {
    got = ::read(file, text.data(), text.size() - 1);
  } while (got < 0 && errno == EINTR);
  ::close(file);
  const char* after_name = got > 0 ? std::strrchr(text.data(), ')') : nullptr;
  // ") S 123 ...": the state is one letter.
  if (after_name == nullptr || std::strlen(after_name) < 5) return 0;
  return static_cast<pid_t>(std::strtol(after_name + 3, nullptr, 10));
}

using Children = std::unordered_map<pid_t, std::vector<pid_t>>;

// Not from task/*/children, which not every kernel has, and which is no more reliable.
Children children_of_all() {
  Children children;
  DIR* folder = ::opendir("/proc");
  if (folder == nullptr) return children;
  while (const dirent* entry = ::readdir(folder)) {
    const auto pid = static_cast<pid_t>(std::strtol(entry->d_name, nullptr, 10));
    if (pid > 0) children[parent_of(pid)].push_back(pid);
  }
  ::closedir(folder);
  return children;
}

}  // namespace

std::vector<pid_t> descendants(pid_t root) {
  const Children children = children_of_all();
  std::vector<pid_t> found = {root != 0 ? root : ::getpid()};
  for (size_t i = 0; i < found.size(); ++i)
    if (const auto its = children.find(found[i]); its != children.end())
      found.insert(found.end(), its->second.begin(), its->second.end());
  found.erase(found.begin());
  return found;
}

bool has_stopped(pid_t pid) {
  const ProcFolder threads(AT_FDCWD, ("/proc/" + std::to_string(pid) + "/task").c_str());
  ProcReader reader;
  for (const pid_t thread : threads.numbers()) {
    const std::string path = std::to_string(thread) + "/stat";
    const auto stat = parse_stat(reader.read(threads.descriptor(), path.c_str()));
    if (stat && (stat->state == 'R' || stat->state == 'S')) return false;
  }
  return true;
}

void remove_our_folder(const char* path) {
  struct stat status{};
  if (!std::filesystem::path(path).filename().string().starts_with("ridge-")) return;
  if (::lstat(path, &status) != 0 || !S_ISDIR(status.st_mode) || status.st_uid != ::geteuid())
    return;
  remove_tree(path);
}

}  // namespace ridge::attach
