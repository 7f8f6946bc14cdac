#include "ridge/train/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "ridge/base/error.h"

namespace ridge {
namespace {

constexpr const char* kFix = "give train.out, or --out, a folder that may be written to";

}  // namespace

RunLock::RunLock(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    throw UserError(fmt::format("cannot make the folder '{}': {}", folder, error.message()), kFix);
  descriptor_ = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor_ < 0)
    throw UserError(fmt::format("cannot open the folder '{}': {}", folder, std::strerror(errno)),
                    kFix);
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  ::close(descriptor_);
  throw UserError(fmt::format("another run is writing to '{}'", folder),
                  "wait for its end, or give --out another folder");
}

RunLock::~RunLock() { ::close(descriptor_); }

}  // namespace ridge
