#include "ridge/attach/kineto/kineto_program.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>

#include "ridge/base/error.h"
#include "ridge/base/html/markup.h"
#include "ridge/io/file.h"

namespace ridge::attach {
namespace {

namespace fs = std::filesystem;

std::string proc_path(pid_t pid, std::string_view name) {
  return fmt::format("/proc/{}/{}", pid, name);
}

// Empty where it cannot be read: the process has ended, or is not ours to see.
std::string proc_text(pid_t pid, std::string_view name) {
  try {
    return read_file(proc_path(pid, name), size_t{64} << 20);
  } catch (const UserError&) {
    return {};
  }
}

std::string link_target(const fs::path& path) {
  std::error_code failed;
  const fs::path target = fs::read_symlink(path, failed);
  return failed ? std::string() : target.string();
}

struct Stat {
  char state = 'X';  // X: the process is gone.
  pid_t parent = 0;
  int64_t start_ticks = 0;
  bool has_ended() const { return state == 'X' || state == 'Z'; }
};

// "123 (name) R 1 ...": the name may hold anything, parentheses included.
Stat stat_of(pid_t pid) {
  const std::string text = proc_text(pid, "stat");
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream fields(text.substr(name_end + 1));
  Stat stat;
  fields >> stat.state >> stat.parent;
  std::string skipped;
  for (int field = 5; field < 22; ++field) fields >> skipped;
  fields >> stat.start_ticks;
  return stat;
}

// The user whose rights it has.
uid_t user_of(pid_t pid) {
  std::istringstream lines(proc_text(pid, "status"));
  std::string line;
  while (std::getline(lines, line)) {
    if (!line.starts_with("Uid:")) continue;
    std::istringstream fields(line.substr(4));
    uid_t real = 0, effective = 0;
    if (fields >> real >> effective) return effective;
  }
  return ::geteuid();
}

std::vector<std::string> split_at_nul(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream all(text);
  std::string part;
  while (std::getline(all, part, '\0')) parts.push_back(part);
  return parts;
}

// Returns the name of the program that a `python` command line runs: the script's file name, the
// module of -m, else nothing.
std::string python_program(const std::vector<std::string>& words) {
  for (size_t i = 1; i < words.size(); ++i) {
    if (words[i] == "-m") return i + 1 < words.size() ? words[i + 1] : std::string();
    if (words[i] == "-c") return {};
    if (words[i] == "-W" || words[i] == "-X")
      ++i;
    else if (!words[i].starts_with('-'))
      return fs::path(words[i]).filename().string();
  }
  return {};
}

std::string program_name(pid_t pid) {
  const std::vector<std::string> words = split_at_nul(proc_text(pid, "cmdline"));
  std::string name;
  if (!words.empty() && fs::path(words[0]).filename().string().starts_with("python"))
    name = python_program(words);
  if (name.empty()) name = proc_text(pid, "comm");
  if (name.ends_with('\n')) name.pop_back();
  return shortened(name, 60);
}

// Starts ranks and waits for them: it has torch, but nothing of it is worth a trace.
bool is_launcher(const std::string& program) {
  return program == "torchrun" || program == "torch.distributed.run" ||
         program == "torch.distributed.launch";
}

bool has_torch(pid_t pid) { return proc_text(pid, "maps").find("/libtorch") != std::string::npos; }

// Inodes of the sockets by which its libkineto talks to daemons. A child that was forked has those
// of its parent, one that was started anew has its own.
std::set<std::string> client_sockets(pid_t pid) {
  std::set<std::string> named, held;
  std::istringstream lines(proc_text(pid, "net/unix"));
  std::string line;
  while (std::getline(lines, line)) {
    if (line.find("dynoconfigclient") == std::string::npos) continue;
    std::istringstream fields(line);
    std::string number, references, protocol, flags, type, state, inode;
    if (fields >> number >> references >> protocol >> flags >> type >> state >> inode)
      named.insert(fmt::format("socket:[{}]", inode));
  }
  if (named.empty()) return held;
  std::error_code failed;
  fs::directory_iterator descriptors(proc_path(pid, "fd"), failed);
  for (; !failed && descriptors != fs::directory_iterator(); descriptors.increment(failed))
    if (const std::string target = link_target(descriptors->path()); named.contains(target))
      held.insert(target);
  return held;
}

// All processes below one, by their numbers.
std::vector<pid_t> descendants(pid_t root) {
  std::multimap<pid_t, pid_t> children;
  std::error_code failed;
  fs::directory_iterator entries("/proc", failed);
  for (; !failed && entries != fs::directory_iterator(); entries.increment(failed)) {
    const std::string name = entries->path().filename().string();
    pid_t pid = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error == std::errc() && end == name.data() + name.size())
      children.emplace(stat_of(pid).parent, pid);
  }
  std::vector<pid_t> found, open = {root};
  while (!open.empty() && found.size() < 100000) {
    const auto [first, last] = children.equal_range(open.back());
    open.pop_back();
    for (auto it = first; it != last; ++it) {
      found.push_back(it->second);
      open.push_back(it->second);
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

// Lists the processes below `root` that have torch, without copies of such parents: loader workers
// are copies.
std::vector<pid_t> torch_below(pid_t root) {
  std::vector<pid_t> all = descendants(root);
  std::erase_if(all, [](pid_t pid) { return !has_torch(pid); });
  std::vector<pid_t> first;
  for (const pid_t pid : all)
    if (!std::binary_search(all.begin(), all.end(), stat_of(pid).parent)) first.push_back(pid);
  return first;
}

[[noreturn]] void fail_without_torch(pid_t pid, const std::string& name) {
  const std::vector<pid_t> below = torch_below(pid);
  if (below.empty())
    throw UserError(fmt::format("{} has not loaded torch, and nothing below it has", name),
                    "name a process that runs PyTorch: pgrep -af python");
  throw UserError(fmt::format("{} has not loaded torch, but {} of those below it {}: {}",
                              name,
                              below.size(),
                              below.size() == 1 ? "has" : "have",
                              fmt::join(below, ", ")),
                  fmt::format("name one of them: ridge doctor --pid {}", below.front()));
}

}  // namespace

KinetoProgram::KinetoProgram(pid_t pid) : pid_(pid) {
  const Stat stat = stat_of(pid);
  const char* fix = "name one that runs: pgrep -af python";
  if (pid <= 0 || !fs::exists(fmt::format("/proc/{}", pid)))
    throw UserError(fmt::format("there is no process {} here", pid), fix);
  if (stat.has_ended()) throw UserError(fmt::format("process {} has ended", pid), fix);
  start_ticks_ = stat.start_ticks;
  const std::string program = program_name(pid);
  name_ = fmt::format("process {} ({})", pid, program);
  if (const uid_t user = user_of(pid); user != ::geteuid())
    throw UserError(fmt::format("{} is of another user ({}), who alone may ask it", name_, user),
                    fmt::format("be that user: sudo -u '#{}' ridge doctor --pid {}", user, pid));
  if (!has_torch(pid)) fail_without_torch(pid, name_);
  read_environment();
  // A program may set the variable for itself: then only its socket shows it.
  if (!wants_daemon_ && client_sockets(pid).empty())
    throw UserError(
        fmt::format("{} was started without KINETO_USE_DAEMON=1: its PyTorch asks nobody whether "
                    "to record",
                    name_),
        "start it so: KINETO_USE_DAEMON=1 python ...; or let ridge start it, which needs nothing: "
        "ridge doctor -- python ...");
  check_reach();
  if (!is_launcher(program)) return;
  if (const std::vector<pid_t> ranks = others_below(); !ranks.empty())
    throw UserError(fmt::format("{} only starts others: {}", name_, fmt::join(ranks, ", ")),
                    fmt::format("name one of them: ridge doctor --pid {}", ranks.front()));
}

void KinetoProgram::read_environment() {
  for (const std::string& entry : split_at_nul(proc_text(pid_, "environ"))) {
    const size_t equals = entry.find('=');
    if (equals == std::string::npos) continue;
    const std::string name = entry.substr(0, equals), value = entry.substr(equals + 1);
    if (name == "KINETO_USE_DAEMON") wants_daemon_ = true;
    if (name == "KINETO_ONDEMAND_TRACE_DIR" && !value.empty()) trace_folder_ = value;
    if (name == "KINETO_IPC_SOCKET_DIR") socket_folder_ = value;
  }
}

// Its files must be ours, and its socket must reach ours.
void KinetoProgram::check_reach() const {
  const auto is_apart = [&](const char* space) {
    const std::string ours = link_target(fmt::format("/proc/self/ns/{}", space));
    const std::string theirs = link_target(proc_path(pid_, fmt::format("ns/{}", space)));
    return !ours.empty() && !theirs.empty() && ours != theirs;
  };
  const char* fix = "run ridge where the program runs: docker exec, kubectl exec, or nsenter";
  if (is_apart("mnt"))
    throw UserError(
        fmt::format("{} sees other files than ridge: it is in another mount namespace, as in a "
                    "container",
                    name_),
        fix);
  if (socket_folder_.empty() && is_apart("net"))
    throw UserError(
        fmt::format("{} cannot reach ridge: it is in another network namespace, as in a container",
                    name_),
        fix);
}

bool KinetoProgram::is_running() const {
  const Stat stat = stat_of(pid_);
  return !stat.has_ended() && stat.start_ticks == start_ticks_;
}

bool KinetoProgram::is_stopped() const {
  const char state = stat_of(pid_).state;
  return state == 'T' || state == 't';
}

bool KinetoProgram::has_open(const std::string& path) const {
  std::error_code failed;
  fs::directory_iterator descriptors(proc_path(pid_, "fd"), failed);
  for (; !failed && descriptors != fs::directory_iterator(); descriptors.increment(failed))
    if (link_target(descriptors->path()) == path) return true;
  return false;
}

std::vector<pid_t> KinetoProgram::others_below() const {
  std::vector<pid_t> found;
  for (const pid_t pid : descendants(pid_)) {
    const std::set<std::string> own = client_sockets(pid);
    if (own.empty()) continue;
    const std::set<std::string> parents = client_sockets(stat_of(pid).parent);
    if (!std::includes(parents.begin(), parents.end(), own.begin(), own.end()))
      found.push_back(pid);
  }
  return found;
}

}  // namespace ridge::attach
