// The defaults of a backend.
#include "ridge/backend/backend.h"

#include <algorithm>
#include <array>
#include <new>

#include "ridge/base/alignment.h"
#include "ridge/base/error.h"

namespace ridge {
namespace {

constexpr std::align_val_t kAlignment{kBufferAlignment};

}  // namespace

size_t same_bits_choice(const std::vector<Choice>& choices) {
  const auto found = std::find_if(
      choices.begin(), choices.end(), [](const Choice& choice) { return !choice.other_bits; });
  return found == choices.end() ? 0 : static_cast<size_t>(found - choices.begin());
}

bool has_other_bits(const std::vector<Choice>& choices, size_t choice) {
  return choices.at(choice).other_bits ||
         choices[choice].bits != choices[same_bits_choice(choices)].bits;
}

std::vector<PackedOperand> Backend::packed_operands(const Node& /*node*/, size_t /*choice*/) const {
  return {};
}

std::unique_ptr<NodeKernel> Backend::instantiate_packed(const Node& node, size_t /*choice*/) const {
  throw InternalError(
      fmt::format("device '{}' packs nothing for node '{}'", name(), node.site.name));
}

void* Backend::allocate_zeros(size_t bytes) {
  DeviceMemory memory(*this, bytes);
  const auto stream = make_stream();
  clear(*stream, memory.get(), bytes);
  stream->synchronize();
  return memory.release();
}

void* Backend::allocate_host(size_t bytes) {
  void* const memory = ::operator new(bytes, kAlignment, std::nothrow);
  check(memory != nullptr, "no memory for {} bytes on the host", bytes);
  return memory;
}

void Backend::deallocate_host(void* memory) noexcept { ::operator delete(memory, kAlignment); }

void Backend::clear(Stream& stream, void* device, size_t bytes) {
  static constexpr std::array<std::byte, size_t{1} << 16> kZeros{};
  for (size_t at = 0; at < bytes; at += kZeros.size())
    copy_to_device(stream,
                   static_cast<std::byte*>(device) + at,
                   kZeros.data(),
                   std::min(kZeros.size(), bytes - at));
}

RecordingResult Backend::record(Stream& /*stream*/, FunctionRef<void()> /*queue*/) {
  throw InternalError(fmt::format("device '{}' cannot record", name()));
}

}  // namespace ridge
