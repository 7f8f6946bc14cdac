// The folder of the shim: made, handed to a program, and removed.
#include "ridge/attach/shim.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "ridge/base/error.h"
#include "ridge/io/file.h"

namespace ridge::attach {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "ridge-shim-";

std::string parent_folder() {
  const char* named = std::getenv("TMPDIR");
  return named != nullptr && *named != '\0' ? named : "/tmp";
}

/// Of "ridge-shim-PID-XXXXXX"; 0 where the name is another.
pid_t owner_in(std::string_view name) {
  if (!name.starts_with(kPrefix)) return 0;
  name.remove_prefix(kPrefix.size());
  pid_t pid = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
  const bool is_ours = error == std::errc() && end != name.data() + name.size() && *end == '-';
  return is_ours && pid > 0 ? pid : 0;
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
    std::error_code ignored;
    fs::remove_all(path, ignored);
    ::close(lock);
  }
}

std::string number(double value) { return fmt::format("{}", value); }

}  // namespace

std::string_view shim_source() {
  for (const auto& [name, text] : shim_files())
    if (name == "sitecustomize.py") return text;
  throw InternalError("the shim has no sitecustomize.py");
}

ShimFolder::ShimFolder(const ShimOptions& options) : options_(options) {
  const std::string parent = fs::absolute(parent_folder()).string();
  check(parent.find(':') == std::string::npos,
        "cannot use '{}' for temporary files: a colon ends an entry of PYTHONPATH; set TMPDIR to "
        "another folder",
        parent);
  remove_old_folders(parent);
  std::string path = fs::path(parent) / fmt::format("{}{}-XXXXXX", kPrefix, ::getpid());
  if (::mkdtemp(path.data()) == nullptr)
    throw UserError(
        fmt::format("cannot make a temporary folder in '{}': {}", parent, std::strerror(errno)),
        "set TMPDIR to a folder that can be written");
  path_ = path;
  lock_ = lock_folder(path_);
  try {
    for (const auto& [name, text] : shim_files()) {
      FileWriter file(path_ + "/" + std::string(name));
      file.write(as_bytes(text));
    }
    if (!options.recipe.empty()) {
      FileWriter file(path_ + "/recipe.json");
      file.write(as_bytes(options.recipe));
    }
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
    if (lock_ >= 0) ::close(lock_);
    throw;
  }
}

ShimFolder::~ShimFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  if (lock_ >= 0) ::close(lock_);
}

std::vector<std::pair<std::string, std::string>> ShimFolder::environment() const {
  std::string path = path_;
  // An empty entry would be the program's working folder.
  if (const char* before = std::getenv("PYTHONPATH"); before != nullptr && *before != '\0')
    path += std::string(":") + before;
  std::vector<std::pair<std::string, std::string>> all = {
      {"PYTHONPATH", path},
      {"RIDGE_SHIM_STEPS", fmt::format("{}", options_.profiled_steps)},
      {"RIDGE_SHIM_WARM_STEPS", fmt::format("{}", options_.warm_steps)},
      {"RIDGE_SHIM_WARM_SECONDS", number(options_.warm_seconds)},
      {"RIDGE_SHIM_MOST_SECONDS", number(options_.most_seconds)},
  };
  if (options_.probes) all.emplace_back("RIDGE_SHIM_PROBE", "1");
  if (options_.gate) all.emplace_back("RIDGE_SHIM_GATE", "1");
  if (options_.record_steps > 0) {
    all.emplace_back("RIDGE_SHIM_RECORD_STEPS", fmt::format("{}", options_.record_steps));
    all.emplace_back("RIDGE_SHIM_RESEED", fmt::format("{}", options_.reseed));
  }
  // Some versions of libkineto say on stderr that they begin and end.
  if (std::getenv("KINETO_LOG_LEVEL") == nullptr) all.emplace_back("KINETO_LOG_LEVEL", "99");
  return all;
}

bool ShimFolder::was_loaded() const {
  std::error_code ignored;
  return fs::exists(path_ + "/loaded", ignored);
}

}  // namespace ridge::attach
