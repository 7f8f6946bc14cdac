// The socket at which libkineto looks for a daemon.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ridge::attach {

class KinetoSocket {
 public:
  /// A datagram, and who sent it by the word of the system.
  struct Letter {
    std::span<const std::byte> bytes{};  ///< Until the next receive().
    pid_t pid = 0;                       ///< By our namespace; 0: not in it.
    uid_t user = 0;
    sockaddr_un from{};
    socklen_t from_bytes = 0;
  };

  /// Takes the abstract name "NAME" and a NUL, which belongs to the name, or the path FOLDER/NAME
  /// where a folder is given. UserError where another daemon has it.
  KinetoSocket(const std::string& name, const std::string& folder);
  KinetoSocket(const KinetoSocket&) = delete;
  KinetoSocket& operator=(const KinetoSocket&) = delete;
  ~KinetoSocket();

  /// The path that it occupies; empty for an abstract name.
  const std::string& path() const { return path_; }
  /// Waits for a datagram, for `milliseconds` at most or until a signal; false: there was none.
  bool receive(int milliseconds, Letter& letter);
  /// False where the sender does not take it (its queue is full, or it is gone).
  bool answer(const Letter& letter, std::string_view bytes) const;

 private:
  void bind_to(const std::string& name, const std::string& folder);

  int socket_ = -1;
  std::string path_;
  std::vector<std::byte> buffer_;
};

}  // namespace ridge::attach
