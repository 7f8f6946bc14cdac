#include "ridge/attach/folders/sandbox.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string_view>

#include "ridge/base/descriptor.h"
#include "ridge/base/error.h"

namespace ridge::attach {
namespace {

namespace fs = std::filesystem;
using Trouble = SandboxTrouble;

constexpr size_t kMostFolders = 32;

/// A short text in place: after fork() nothing may be allocated.
class ShortText {
 public:
  ShortText& operator<<(std::string_view text) {
    const size_t count = std::min(text.size(), text_.size() - 1 - size_);
    std::memcpy(text_.data() + size_, text.data(), count);
    size_ += count;
    return *this;
  }
  ShortText& operator<<(uint64_t number) {
    std::array<char, 20> digits{};
    const char* end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
    return *this << std::string_view(digits.data(), static_cast<size_t>(end - digits.data()));
  }
  const char* c_str() const { return text_.data(); }
  size_t size() const { return size_; }

 private:
  std::array<char, 256> text_{};
  size_t size_ = 0;
};

/// The error's number, or 0.
int write_to(const char* path, const ShortText& text) {
  const int file = ::open(path, O_WRONLY | O_CLOEXEC);
  if (file < 0) return errno;
  const bool is_written = ::write(file, text.c_str(), text.size()) >= 0;
  const int error = is_written ? 0 : errno;
  ::close(file);
  return error;
}

Trouble enter_namespaces(const Sandbox& sandbox) {
  const uint64_t user = ::geteuid(), group = ::getegid();
  if (sandbox.in_user_namespace) {
    if (::unshare(CLONE_NEWUSER) != 0) return {Trouble::kUserNamespace, errno};
    // Without it the system takes no map of groups from who may not set them. Old ones have none.
    if (const int error = write_to("/proc/self/setgroups", ShortText() << "deny");
        error != 0 && error != ENOENT)
      return {Trouble::kIds, error};
    for (const auto& [path, id] :
         {std::pair{"/proc/self/uid_map", user}, {"/proc/self/gid_map", group}})
      if (const int error = write_to(path, ShortText() << id << " " << id << " 1"); error != 0)
        return {Trouble::kIds, error};
  }
  if (::unshare(CLONE_NEWNS) != 0) return {Trouble::kMountNamespace, errno};
  // Without this, mounts that are made here would appear for all processes.
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    return {Trouble::kPrivate, errno};
  return {};
}

/// Over `folder`, which `lower` is open on: its name may lead to an overlay by now.
Trouble mount_overlay(const Sandbox& sandbox, size_t number, int lower) {
  const char* folder = sandbox.folders[number].c_str();
  ShortText options;
  options << "lowerdir=/proc/self/fd/" << static_cast<uint64_t>(lower) << ",upperdir=" << number
          << "/upper,workdir=" << number << "/work";
  // Marks that a user's own files may have; without them no folder could be renamed.
  options << (sandbox.in_user_namespace ? ",userxattr" : ",redirect_dir=on");
  if (::mount("ridge", folder, "overlay", 0, options.c_str()) != 0) return {Trouble::kMount, errno};
  struct statfs status{};
  if (::statfs(folder, &status) != 0) return {Trouble::kMount, errno};
  // It falls back to this where it cannot write into the state.
  if (status.f_type != OVERLAYFS_SUPER_MAGIC || (status.f_flags & ST_RDONLY) != 0)
    return {Trouble::kReadOnly, EROFS};
  return {};
}

/// "\040" for a space.
std::string unescaped(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    int code = 0;
    if (text[i] == '\\' && i + 3 < text.size() &&
        std::from_chars(text.data() + i + 1, text.data() + i + 4, code, 8).ec == std::errc()) {
      plain += static_cast<char>(code);
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

/// Lists the mount points beneath the folder, the outer ones first.
std::set<std::string> mounts_in(const std::string& folder) {
  std::set<std::string> found;
  std::ifstream file("/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    // "36 35 98:0 /root /where ..."
    size_t start = 0;
    for (int field = 0; field < 4 && start != line.npos; ++field) start = line.find(' ', start + 1);
    if (start == line.npos) continue;
    const std::string where =
        unescaped(line.substr(start + 1, line.find(' ', start + 1) - start - 1));
    if (where.starts_with(folder + "/")) found.insert(where);
  }
  return found;
}

/// The folder that an overlay shows is in all but its content the one that it writes into.
void make_upper(const std::string& upper, const struct stat& shown) {
  fs::create_directories(upper);
  // Without the right to give it to another it stays ours.
  [[maybe_unused]] const int is_given = ::chown(upper.c_str(), shown.st_uid, shown.st_gid);
  ::chmod(upper.c_str(), shown.st_mode & 07777);
}

/// An overlay in a user namespace keeps its marks in these.
void check_marks(const std::string& folder) {
  if (::setxattr(folder.c_str(), "user.ridge", "1", 1, 0) != 0)
    throw UserError(fmt::format("'{}' lies on a file system without extended attributes ({})",
                                folder,
                                std::strerror(errno)));
  ::removexattr(folder.c_str(), "user.ridge");
}

}  // namespace

std::string SandboxTrouble::text() const {
  const auto what = [&] {
    switch (stage) {
      case kUserNamespace:
        return "make a user namespace";
      case kIds:
        return "keep the ids in a user namespace";
      case kMountNamespace:
        return "make a mount namespace";
      case kPrivate:
        return "keep mounts private";
      case kState:
        return "open the folder for temporary files";
      case kFolder:
        return "open the working folder";
      case kReadOnly:
        return "write into it";
      default:
        return "mount it";
    }
  };
  return fmt::format("cannot {}: {}", what(), std::strerror(error));
}

Sandbox make_sandbox(const std::string& folder, const std::string& parent, bool in_user_namespace) {
  Sandbox sandbox{.folders = {folder}, .state = parent, .in_user_namespace = in_user_namespace};
  fs::create_directories(parent);
  if (in_user_namespace) check_marks(parent);
  for (const std::string& where : mounts_in(folder)) sandbox.folders.push_back(where);
  size_t kept = 0;
  for (const std::string& shown : sandbox.folders) {
    struct stat status{};
    // One that lies hidden beneath another.
    if (::stat(shown.c_str(), &status) != 0) continue;
    check(S_ISDIR(status.st_mode), "a file is mounted at '{}'", shown);
    const std::string state = fmt::format("{}/{}", parent, kept);
    make_upper(state + "/upper", status);
    fs::create_directory(state + "/work");
    sandbox.folders[kept++] = shown;
  }
  check(kept > 0, "'{}' is not there", folder);
  check(kept <= kMostFolders, "{} mounts are too many", kept - 1);
  sandbox.folders.resize(kept);
  return sandbox;
}

SandboxTrouble enter_sandbox(const Sandbox& sandbox) {
  if (const Trouble trouble = enter_namespaces(sandbox); trouble.stage != Trouble::kNone)
    return trouble;
  // All before the first is hidden.
  std::array<int, kMostFolders> lowers{};
  const size_t count = std::min(sandbox.folders.size(), lowers.size());
  for (size_t i = 0; i < count; ++i) {
    lowers[i] = ::open(sandbox.folders[i].c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (lowers[i] < 0) return {Trouble::kFolder, errno};
  }
  if (::chdir(sandbox.state.c_str()) != 0) return {Trouble::kState, errno};
  for (size_t i = 0; i < count; ++i) {
    if (const Trouble trouble = mount_overlay(sandbox, i, lowers[i]);
        trouble.stage != Trouble::kNone)
      return trouble;
    ::close(lowers[i]);
  }
  if (::chdir(sandbox.folders[0].c_str()) != 0) return {Trouble::kFolder, errno};
  return {};
}

SandboxTrouble try_sandbox(const Sandbox& sandbox) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return {Trouble::kMountNamespace, errno};
  const Descriptor reader(ends[0]);
  Descriptor writer(ends[1]);
  // Handlers of this process are no business of the other.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t child = ::fork();
  if (child == 0) {
    const Trouble found = enter_sandbox(sandbox);
    [[maybe_unused]] const ssize_t written = ::write(writer.get(), &found, sizeof found);
    ::_exit(0);  // floors-waiver: a process that was made to try
  }
  Trouble trouble{Trouble::kMountNamespace, errno};
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (child < 0) return trouble;
  writer = Descriptor();
  trouble.error = ECHILD;
  while (::read(reader.get(), &trouble, sizeof trouble) < 0 && errno == EINTR) {
  }
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return trouble;
}

}  // namespace ridge::attach
