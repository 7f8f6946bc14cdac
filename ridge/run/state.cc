#include "ridge/run/state.h"

#include <algorithm>
#include <vector>

namespace ridge {

State::State(const Plan& plan, Backend& backend)
    : plan_(plan), backend_(backend), memory_(resident_memory(backend, plan.state_bytes)) {}

const PlanSlot& State::get(std::string_view name) const {
  const PlanSlot* slot = find_slot(plan_.state, name);
  if (slot != nullptr) return *slot;
  std::vector<std::string> names;
  for (const PlanSlot& known : plan_.state) names.push_back(known.name);
  throw UserError(fmt::format("the state has no buffer '{}'", name), did_you_mean(name, names));
}

void State::write(std::string_view name, const Tensor& tensor) {
  const PlanSlot& slot = get(name);
  check(tensor.type() == slot.type,
        "state '{}' has another type; got {}, expected {}",
        name,
        to_string(tensor.type()),
        to_string(slot.type));
  const auto stream = backend_.make_stream();
  backend_.copy_to_device(*stream, data(slot), tensor.data(), tensor.bytes());
  stream->synchronize();
}

Tensor State::read(std::string_view name) const {
  const PlanSlot& slot = get(name);
  Tensor tensor(slot.type);
  const auto stream = backend_.make_stream();
  backend_.copy_to_host(*stream, tensor.data(), data(slot), tensor.bytes());
  stream->synchronize();
  return tensor;
}

void* State::data(const PlanSlot& slot) const {
  return static_cast<std::byte*>(memory_.get()) + slot.place.offset;
}

bool is_saved(StateRole role) {
  return role != StateRole::kGradient && role != StateRole::kShadow && role != StateRole::kPacked;
}

DeviceMemory resident_memory(Backend& backend, int64_t bytes) {
  constexpr int64_t kPiece = int64_t{1} << 20;
  DeviceMemory memory(backend, static_cast<size_t>(bytes));
  const std::vector<std::byte> zeros(static_cast<size_t>(std::min(bytes, kPiece)));
  const auto stream = backend.make_stream();
  for (int64_t at = 0; at < bytes; at += kPiece)
    backend.copy_to_device(*stream,
                           static_cast<std::byte*>(memory.get()) + at,
                           zeros.data(),
                           static_cast<size_t>(std::min(kPiece, bytes - at)));
  stream->synchronize();
  return memory;
}

}  // namespace ridge
