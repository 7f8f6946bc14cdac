#include "ridge/run/state.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <shared_mutex>
#include <utility>

#include "ridge/base/alignment.h"
#include "ridge/base/cpu/file_pages.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/base/cpu/scale_rows.h"
#include "ridge/base/cpu/transposed_copy.h"
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
  return a.constant->is_same(*b.constant);
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

void check_size(const StateEntry& constant) {
  const size_t bytes = constant.constant->bytes.size();
  check_internal(bytes == static_cast<size_t>(constant.type.bytes()),
                 "constant '{}' has {} bytes for {}",
                 constant.name,
                 bytes,
                 to_string(constant.type));
}

}  // namespace

State::State(Backend& backend) : backend_(backend) {}

State::~State() = default;

std::vector<std::shared_ptr<StateBuffer>> State::declare(std::span<const StateEntry> entries) {
  const std::lock_guard declaring(declaring_);
  std::vector<std::shared_ptr<StateBuffer>> all;
  Buffers added, held;
  std::vector<std::pair<StateBuffer*, int64_t>> offsets, derived;
  int64_t bytes = 0, derived_bytes = 0;
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
      check_size(entry);
      buffer->version = 1;
    } else {
      derived.emplace_back(buffer.get(), derived_bytes);
      derived_bytes += aligned_bytes(entry.type.bytes());
    }
  }
  if (added.empty() && held.empty()) return all;
  place_derived(derived, derived_bytes);
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

// In one block, which takes fewer and larger pages than many. Every byte is written before one is
// read.
void State::place_derived(std::span<const std::pair<StateBuffer*, int64_t>> offsets,
                          int64_t bytes) const {
  if (bytes == 0) return;
  const auto block = std::make_shared<const DeviceMemory>(backend_, static_cast<size_t>(bytes));
  for (const auto& [buffer, offset] : offsets) {
    buffer->data = static_cast<std::byte*>(block->get()) + offset;
    buffer->block = block;
  }
}

void State::use_constant(StateBuffer& buffer) const {
  const std::lock_guard lock(constants_);
  if (buffer.uses > 0) {
    ++buffer.uses;
    return;
  }
  const StateConstant& constant = *buffer.entry.constant;
  const auto size = static_cast<size_t>(buffer.entry.type.bytes());
  const bool is_at_hand =
      constant.is_bytes ? backend_.is_host() : can_adopt(buffer.entry.type, constant.bytes.data());
  if (constant.is_as_it_lies() && is_at_hand) {
    // Nobody writes there: writable() refuses it.
    buffer.data = const_cast<std::byte*>(constant.bytes.data());
  } else {
    // Constants are mostly used one after another, and it takes time to get memory.
    DeviceMemory memory = std::move(spare_);
    const size_t bytes = std::exchange(spare_bytes_, 0);
    if (bytes < size || bytes / 2 > size) {
      memory = {};
      memory = DeviceMemory(backend_, size);
    }
    place_elements(constant, buffer.entry.type, memory.get());
    release_file_pages(constant.bytes.data(), size);
    buffer.data = static_cast<std::byte*>(memory.get());
    buffer.memory = std::move(memory);
  }
  buffer.uses = 1;
}

namespace {

// Writes the elements of the constant to memory of the host.
void write_elements(const StateConstant& constant, const TensorType& type, void* to) {
  const std::byte* const from = constant.bytes.data();
  auto* const bytes = static_cast<std::byte*>(to);
  if (!constant.perm.empty())
    transpose_elements({type.dtype, constant.lying}, from, constant.perm, to);
  else
    parallel_for(std::ssize(constant.bytes), int64_t{1} << 20, [&](int64_t begin, int64_t end) {
      std::copy(from + begin, from + end, bytes + begin);
    });
  if (constant.scale.empty()) return;
  const auto columns = std::ssize(constant.scale);
  const size_t row = constant.scale.size() * size_of(type.dtype);
  const int64_t grain = std::max<int64_t>(1, (int64_t{1} << 18) / columns);
  parallel_for(type.elements() / columns, grain, [&](int64_t begin, int64_t end) {
    scale_rows(type.dtype, bytes + static_cast<size_t>(begin) * row, end - begin, constant.scale);
  });
}

}  // namespace

void State::place_elements(const StateConstant& constant, const TensorType& type, void* to) const {
  if (backend_.is_host()) return write_elements(constant, type, to);
  const void* from = constant.bytes.data();
  Tensor written;
  if (!constant.is_as_it_lies()) {
    written = Tensor::unset(type);
    write_elements(constant, type, written.data());
    from = written.data();
  }
  const auto stream = backend_.make_stream();
  backend_.copy_to_device(*stream, to, from, constant.bytes.size());
  stream->synchronize();
}

void State::leave_constant(StateBuffer& buffer) const {
  const std::lock_guard lock(constants_);
  if (--buffer.uses > 0) return;
  // Pages of a file come again where they are read.
  release_file_pages(buffer.data, static_cast<size_t>(buffer.entry.type.bytes()));
  buffer.data = nullptr;
  if (buffer.memory.get() == nullptr) return;
  spare_ = std::move(buffer.memory);
  spare_bytes_ = static_cast<size_t>(buffer.entry.type.bytes());
}

void State::free_spare() const {
  const std::lock_guard lock(constants_);
  spare_ = {};
  spare_bytes_ = 0;
}

ConstantUse::ConstantUse(const State& state, std::shared_ptr<StateBuffer> constant)
    : state_(&state), constant_(std::move(constant)) {
  state_->use_constant(*constant_);
}

ConstantUse::~ConstantUse() {
  if (constant_ != nullptr) state_->leave_constant(*constant_);
}

bool State::can_adopt(const TensorType& type, const void* data) const {
  return backend_.can_read_at(data, type.dtype);
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
  const std::lock_guard constants(constants_);
  int64_t bytes = bytes_;
  for (const auto& [name, held] : held_)
    if (const auto buffer = held.lock();
        buffer != nullptr && (buffer->memory.get() != nullptr || buffer->block != nullptr))
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
  std::optional<ConstantUse> use;
  if (from->entry.constant != nullptr) use.emplace(*this, from);
  Tensor tensor(from->entry.type);
  const std::lock_guard lock(runs_);
  wait_for_programs();
  backend_.copy_to_host(*stream_, tensor.data(), from->data, tensor.bytes());
  stream_->synchronize();
  use.reset();
  free_spare();
  return tensor;
}

bool is_saved(StateRole role) { return role != StateRole::kGradient && role != StateRole::kPacked; }

DeviceMemory resident_memory(Backend& backend, int64_t bytes) {
  return DeviceMemory::zeros(backend, static_cast<size_t>(bytes));
}

}  // namespace ridge
