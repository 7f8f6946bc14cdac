// Datagrams from whoever sends them: what is taken for a message holds together.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "ridge/attach/kineto/kineto_messages.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using ridge::attach::KinetoMessage;
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto message = ridge::attach::parse_kineto_message(bytes);
  if (!message) return 0;
  require(size >= 56 && size <= ridge::attach::kLongestKinetoMessage);
  require(!message->pids.empty() && message->pids.size() * 4 <= size - 40);
  if (message->kind == KinetoMessage::Kind::kRegister)
    require(message->pids.size() == 1 && !message->is_free);
  // A byte less is another message or none, and never more than there is.
  const auto cut = ridge::attach::parse_kineto_message(bytes.first(size - 1));
  require(!cut);
  return 0;
}
