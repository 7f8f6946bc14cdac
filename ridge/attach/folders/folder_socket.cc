#include "ridge/attach/folders/folder_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

#include "ridge/base/error.h"

namespace ridge::attach {
namespace {

constexpr int kBacklog = 64;

}  // namespace

Descriptor listen_in(const std::string& folder, const std::string& name) {
  Descriptor listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const Descriptor place(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // The folder's own path may be longer than an address can be.
  const std::string path = fmt::format("/proc/self/fd/{}/{}", place.get(), name);
  check_internal(path.size() < sizeof address.sun_path, "[listen_in] '{}' is too long", name);
  std::memcpy(address.sun_path, path.data(), path.size());
  if (listener.get() < 0 || place.get() < 0 ||
      ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listener.get(), kBacklog) != 0)
    throw UserError(fmt::format("cannot listen in '{}': {}", folder, std::strerror(errno)),
                    "let TMPDIR name a folder on a local disk");
  return listener;
}

}  // namespace ridge::attach
