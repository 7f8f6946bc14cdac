#include "ridge/run/state.h"

#include <algorithm>
#include <cstring>
#include <shared_mutex>

#include "ridge/base/alignment.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/graph/text.h"
#include "ridge/run/state_use.h"

namespace ridge {
namespace {

std::string describe(const StateEntry& entry) {
  return fmt::format("{} ({}{}{})",
                     to_string(entry.type),
                     name_of(entry.role),
                     entry.derivation == nullptr ? "" : ", derived",
                     entry.constant == nullptr ? "" : ", constant");
}

bool is_same_derivation(const StateEntry& a, const StateEntry& b) {
  if (a.derivation == nullptr || b.derivation == nullptr) return a.derivation == b.derivation;
  return a.derivation == b.derivation || print(*a.derivation) == print(*b.derivation);
}

bool is_same_constant(const StateEntry& a, const StateEntry& b) {
  if (a.constant == nullptr || b.constant == nullptr) return a.constant == b.constant;
  const auto &x = a.constant->bytes, &y = b.constant->bytes;
  return x.size() == y.size() &&
         (x.data() == y.data() || std::memcmp(x.data(), y.data(), x.size()) == 0);
}

void check_same(const StateEntry& entry, const StateEntry& known) {
  if (entry.type != known.type || entry.role != known.role ||
      (entry.derivation == nullptr) != (known.derivation == nullptr) ||
      (entry.constant == nullptr) != (known.constant == nullptr))
    throw UserError(fmt::format("state '{}' is there as something else; got {}, expected {}",
                                entry.name,
                                describe(entry),
                                describe(known)),
                    "give the buffer another name, or the program a state of its own");
  check(is_same_derivation(entry, known),
        "state '{}' is there already, and derived in another way",
        entry.name);
  if (!is_same_constant(entry, known))
    throw UserError(fmt::format("state '{}' is there already, with other elements", entry.name),
                    "give each model a state of its own");
}

}  // namespace

State::State(Backend& backend) : backend_(backend) {}

State::~State() = default;

std::vector<std::shared_ptr<StateBuffer>> State::declare(std::span<const StateEntry> entries) {
  const std::lock_guard declaring(declaring_);
  std::vector<std::shared_ptr<StateBuffer>> all;
  Buffers added, held;
  std::vector<std::pair<StateBuffer*, int64_t>> offsets;
  int64_t bytes = 0;
  for (const StateEntry& entry : entries) {
    const bool is_held = entry.derivation != nullptr || entry.constant != nullptr;
    Buffers& kind = is_held ? held : added;
    auto known = find(entry.name);
    for (const Buffers* const fresh : {&added, &held})
      if (const auto at = fresh->find(entry.name); at != fresh->end()) known = at->second;
    if (known != nullptr) {
      check_same(entry, known->entry);
      all.push_back(std::move(known));
      continue;
    }
    const auto buffer = std::make_shared<StateBuffer>(StateBuffer{.entry = entry});
    all.push_back(buffer);
    kind.emplace(entry.name, buffer);
    if (!is_held) {
      offsets.emplace_back(buffer.get(), bytes);
      bytes += aligned_bytes(entry.type.bytes());
    } else if (entry.constant != nullptr) {
      place_constant(*buffer);
    } else {
      // Every byte is written before one is read.
      buffer->memory = DeviceMemory(backend_, static_cast<size_t>(entry.type.bytes()));
      buffer->data = static_cast<std::byte*>(buffer->memory.get());
    }
  }
  if (added.empty() && held.empty()) return all;
  DeviceMemory block;
  if (bytes > 0) block = resident_memory(backend_, bytes);
  for (const auto& [buffer, offset] : offsets)
    buffer->data = static_cast<std::byte*>(block.get()) + offset;
  const std::lock_guard lock(names_);
  std::erase_if(held_, [](const auto& each) { return each.second.expired(); });
  for (const auto& [name, buffer] : held) held_[name] = buffer;
  if (bytes > 0) blocks_.push_back(std::move(block));
  buffers_.merge(added);
  bytes_ += bytes;
  return all;
}

void State::place_constant(StateBuffer& buffer) const {
  const StateConstant& constant = *buffer.entry.constant;
  const auto size = static_cast<size_t>(buffer.entry.type.bytes());
  check_internal(constant.bytes.size() == size,
                 "constant '{}' has {} bytes for {}",
                 buffer.entry.name,
                 constant.bytes.size(),
                 to_string(buffer.entry.type));
  buffer.version = 1;
  if (can_adopt(buffer.entry.type, constant.bytes.data())) {
    // Nobody writes there: writable() refuses it.
    buffer.data = const_cast<std::byte*>(constant.bytes.data());
    return;
  }
  buffer.memory = DeviceMemory(backend_, size);
  buffer.data = static_cast<std::byte*>(buffer.memory.get());
  const auto stream = backend_.make_stream();
  backend_.copy_to_device(*stream, buffer.data, constant.bytes.data(), size);
  stream->synchronize();
}

bool State::can_adopt(const TensorType& type, const void* data) const {
  return backend_.is_host() && reinterpret_cast<uintptr_t>(data) % size_of(type.dtype) == 0;
}

void State::adopt(const StateEntry& entry, const void* data, std::shared_ptr<const void> lender) {
  check_internal(can_adopt(entry.type, data), "the memory of '{}' cannot be adopted", entry.name);
  const std::lock_guard declaring(declaring_);
  check(
      !has(entry.name), "state '{}' is there already, and cannot be another's memory", entry.name);
  auto buffer = std::make_shared<StateBuffer>(
      StateBuffer{.entry = entry,
                  // Nobody writes there: writable() and Program refuse it.
                  .data = static_cast<std::byte*>(const_cast<void*>(data)),
                  .version = 1,
                  .lender = std::move(lender)});
  const std::lock_guard lock(names_);
  buffers_.emplace(entry.name, std::move(buffer));
}

std::shared_ptr<StateBuffer> State::find(std::string_view name) const {
  const std::lock_guard lock(names_);
  if (const auto at = buffers_.find(name); at != buffers_.end()) return at->second;
  const auto at = held_.find(name);
  return at == held_.end() ? nullptr : at->second.lock();
}

bool State::has(std::string_view name) const { return find(name) != nullptr; }

std::vector<StateEntry> State::entries() const {
  const std::lock_guard lock(names_);
  std::vector<StateEntry> entries;
  for (const auto& [name, buffer] : buffers_) entries.push_back(buffer->entry);
  return entries;
}

int64_t State::bytes() const {
  const std::lock_guard lock(names_);
  int64_t bytes = bytes_;
  for (const auto& [name, held] : held_)
    if (const auto buffer = held.lock(); buffer != nullptr && buffer->memory.get() != nullptr)
      bytes += aligned_bytes(buffer->entry.type.bytes());
  return bytes;
}

std::shared_ptr<StateBuffer> State::buffer(std::string_view name) const {
  if (auto found = find(name)) return found;
  std::vector<std::string> names;
  for (const StateEntry& known : entries()) names.push_back(known.name);
  throw UserError(fmt::format("the state has no buffer '{}'", name), did_you_mean(name, names));
}

std::shared_ptr<StateBuffer> State::writable(std::string_view name) const {
  auto found = buffer(name);
  if (found->lender != nullptr)
    throw UserError(
        fmt::format("state '{}' lies in a file that is mapped, and cannot be updated", name),
        "copy the weights into the state");
  check(found->entry.derivation == nullptr,
        "state '{}' is derived from others, and cannot be written",
        name);
  check(found->entry.constant == nullptr, "state '{}' is a constant, and cannot be written", name);
  return found;
}

uint64_t State::version(std::string_view name) const {
  const auto found = buffer(name);
  const std::shared_lock lock(runs_);
  return found->version;
}

// Under the lock, held alone.
void State::wait_for_programs() const {
  if (stream_ == nullptr) stream_ = backend_.make_stream();
  if (!backend_.is_asynchronous()) return;
  for (StateUse* const use : uses_)
    if (use->queued_ > use->finished_) use->hold_up(*stream_);
}

void State::write_locked(StateBuffer& buffer, size_t first, const void* host, size_t bytes) {
  ++buffer.version;
  wait_for_programs();
  backend_.copy_to_device(*stream_, buffer.data + first, host, bytes);
  stream_->synchronize();
}

void State::initialize(uint64_t seed) {
  constexpr int64_t kPiece = int64_t{1} << 17;
  for (const StateEntry& entry : entries()) {
    const auto to = buffer(entry.name);
    const std::lock_guard lock(runs_);
    if (to->version > 0 || entry.init == Initializer::zeros()) continue;
    const InitialElements elements(entry.init, seed, entry.name);
    const int64_t all = entry.type.elements();
    size_t at = 0;
    for (int64_t first = 0; first < all; first += kPiece) {
      Tensor piece({entry.type.dtype, {std::min(kPiece, all - first)}});
      parallel_for(piece.elements(), int64_t{1} << 14, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          piece.set(i, elements.at(static_cast<uint64_t>(first + i)));
      });
      write_locked(*to, at, piece.data(), piece.bytes());
      at += piece.bytes();
    }
  }
}

void State::write(std::string_view name, const Tensor& tensor) {
  const auto to = writable(name);
  check(tensor.type() == to->entry.type,
        "state '{}' has another type; got {}, expected {}",
        name,
        to_string(tensor.type()),
        to_string(to->entry.type));
  const std::lock_guard lock(runs_);
  write_locked(*to, 0, tensor.data(), tensor.bytes());
}

void State::write_part(std::string_view name, size_t first, const void* host, size_t bytes) {
  const auto to = writable(name);
  const auto size = static_cast<size_t>(to->entry.type.bytes());
  check_internal(first <= size && bytes <= size - first,
                 "{} bytes from {} on are more than '{}' has",
                 bytes,
                 first,
                 name);
  const std::lock_guard lock(runs_);
  write_locked(*to, first, host, bytes);
}

// Alone, for it records events of programs, which must not record them at the same time.
Tensor State::read(std::string_view name) const {
  const auto from = buffer(name);
  Tensor tensor(from->entry.type);
  const std::lock_guard lock(runs_);
  wait_for_programs();
  backend_.copy_to_host(*stream_, tensor.data(), from->data, tensor.bytes());
  stream_->synchronize();
  return tensor;
}

bool is_saved(StateRole role) { return role != StateRole::kGradient && role != StateRole::kPacked; }

DeviceMemory resident_memory(Backend& backend, int64_t bytes) {
  const auto size = static_cast<size_t>(bytes);
  DeviceMemory memory(backend, size);
  const auto stream = backend.make_stream();
  backend.clear(*stream, memory.get(), size);
  stream->synchronize();
  return memory;
}

}  // namespace ridge
