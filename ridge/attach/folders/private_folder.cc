#include "ridge/attach/folders/private_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "ridge/base/error.h"

namespace ridge::attach {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 5> kKinds = {"model", "patch", "peer", "place", "shim"};

/// Returns PID of "ridge-KIND-PID-XXXXXX"; 0 for another name.
pid_t owner_in(std::string_view name) {
  for (const std::string_view kind : kKinds) {
    const std::string prefix = fmt::format("ridge-{}-", kind);
    if (!name.starts_with(prefix)) continue;
    const std::string_view rest = name.substr(prefix.size());
    pid_t pid = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), pid);
    const bool is_ours = error == std::errc() && end != rest.data() + rest.size() && *end == '-';
    return is_ours && pid > 0 ? pid : 0;
  }
  return 0;
}

/// Opened and locked; -1 where somebody else holds it.
int lock_folder(const std::string& path) {
  const int folder = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
  if (folder < 0) return -1;
  if (::flock(folder, LOCK_EX | LOCK_NB) == 0) return folder;
  ::close(folder);
  return -1;
}

bool belongs_to_us(const std::string& path) {
  struct stat status;
  return ::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
         status.st_uid == ::geteuid();
}

/// Folders of processes that were killed. A number can be known in another container only: so the
/// lock says who lives, and the number keeps us from a folder that is just being made.
void remove_old_folders(const std::string& parent) {
  std::error_code error;
  for (fs::directory_iterator it(parent, error), end; !error && it != end; it.increment(error)) {
    const pid_t owner = owner_in(it->path().filename().string());
    if (owner == 0 || ::kill(owner, 0) == 0 || errno != ESRCH) continue;
    const std::string path = it->path().string();
    if (!belongs_to_us(path)) continue;
    const int lock = lock_folder(path);
    if (lock < 0) continue;
    remove_tree(path);
    ::close(lock);
  }
}

/// A folder is emptied by who may read and write it: its mode counts, and that of those in it.
void give_rights(const fs::path& folder) {
  if (::chmod(folder.c_str(), 0700) != 0) return;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (it->symlink_status(ignored).type() == fs::file_type::directory) give_rights(it->path());
  }
}

}  // namespace

std::string folder_for_temporary_files() {
  const char* named = std::getenv("TMPDIR");
  return fs::absolute(named != nullptr && *named != '\0' ? named : "/tmp").string();
}

void remove_tree(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (!error) return;
  struct stat status;
  if (::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) give_rights(path);
  // A second time for what came into it meanwhile.
  for (int attempt = 0; attempt < 2; ++attempt) {
    fs::remove_all(path, error);
    if (!error) return;
  }
}

PrivateFolder::PrivateFolder(std::string_view kind) {
  const std::string parent = folder_for_temporary_files();
  remove_old_folders(parent);
  path_ = (fs::path(parent) / fmt::format("ridge-{}-{}-XXXXXX", kind, ::getpid())).string();
  check_internal(owner_in(fs::path(path_).filename().string()) != 0, "no kind: {}", kind);
  if (::mkdtemp(path_.data()) == nullptr)
    throw UserError(
        fmt::format("cannot make a temporary folder in '{}': {}", parent, std::strerror(errno)),
        "set TMPDIR to a folder that can be written");
  lock_ = lock_folder(path_);
}

PrivateFolder::~PrivateFolder() {
  remove_tree(path_);
  if (lock_ >= 0) ::close(lock_);
}

}  // namespace ridge::attach
