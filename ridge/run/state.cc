#include "ridge/run/state.h"

#include <vector>

namespace ridge {

State::State(const Plan& plan, Backend& backend)
    : plan_(plan),
      backend_(backend),
      memory_(resident_memory(backend, plan.state_bytes)),
      stream_(backend.make_stream()) {}

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
  write_part(slot, 0, tensor.data(), tensor.bytes());
}

void State::write_part(const PlanSlot& slot, size_t first, const void* host, size_t bytes) {
  check_internal(first + bytes <= static_cast<size_t>(slot.place.bytes),
                 "{} bytes from {} on are more than '{}' has",
                 bytes,
                 first,
                 slot.name);
  backend_.copy_to_device(*stream_, static_cast<std::byte*>(data(slot)) + first, host, bytes);
  stream_->synchronize();
}

Tensor State::read(std::string_view name) const {
  const PlanSlot& slot = get(name);
  Tensor tensor(slot.type);
  backend_.copy_to_host(*stream_, tensor.data(), data(slot), tensor.bytes());
  stream_->synchronize();
  return tensor;
}

void* State::data(const PlanSlot& slot) const {
  return static_cast<std::byte*>(memory_.get()) + slot.place.offset;
}

bool is_saved(StateRole role) {
  return role != StateRole::kGradient && role != StateRole::kShadow && role != StateRole::kPacked;
}

DeviceMemory resident_memory(Backend& backend, int64_t bytes) {
  const auto size = static_cast<size_t>(bytes);
  DeviceMemory memory(backend, size);
  const auto stream = backend.make_stream();
  backend.clear(*stream, memory.get(), size);
  stream->synchronize();
  return memory;
}

}  // namespace ridge
