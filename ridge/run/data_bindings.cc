#include "ridge/run/data_bindings.h"

#include "ridge/base/alignment.h"

namespace ridge {

DataBindings::DataBindings(const EntryPlan& plan,
                           Launches& launches,
                           Backend& backend,
                           Stream& stream,
                           FunctionRef<void*(const Place&)> address)
    : plan_(plan), launches_(launches), backend_(backend), stream_(stream) {
  const auto add = [&](const std::vector<PlanSlot>& slots, std::vector<Datum>& data) {
    for (const PlanSlot& slot : slots) {
      auto* const own = static_cast<std::byte*>(address(slot.place));
      data.push_back({.own = own, .now = own});
    }
  };
  add(plan.inputs, inputs_);
  add(plan.outputs, outputs_);
}

// On the host inputs may lie as in a mapped file (KernelArgs).
std::string_view DataBindings::refusal(const PlanSlot& slot,
                                       const void* address,
                                       bool is_output) const {
  if (slot.uses.empty() && slot.place.region != Region::kBound)
    return "it has no bytes that are its own";
  const bool is_loose = backend_.is_host() && !is_output;
  const size_t alignment = is_loose ? size_of(slot.type.dtype) : size_t{kBufferAlignment};
  if (reinterpret_cast<uintptr_t>(address) % alignment == 0) return {};
  return is_loose ? "its address is no multiple of the size of an element"
                  : "its address is no multiple of 64";
}

void DataBindings::set(const PlanSlot& slot, Datum& datum, std::byte* address) {
  if (datum.now == address) return;
  // Queued launches read their addresses when they run.
  if (backend_.is_asynchronous()) stream_.synchronize();
  datum.now = address;
  is_changed_ = true;
  for (const LaunchOperand& use : slot.uses) launches_.set(use, address);
}

std::string_view DataBindings::bind(const PlanSlot& slot,
                                    Datum& datum,
                                    std::byte* address,
                                    bool is_output) {
  const std::string_view why = address == nullptr ? "" : refusal(slot, address, is_output);
  const bool is_copied = !why.empty();
  check(!is_copied || datum.own != nullptr, "'{}' cannot be bound: {}", slot.name, why);
  set(slot, datum, address == nullptr || is_copied ? datum.own : address);
  datum.copied = is_copied ? address : nullptr;
  return why;
}

std::string_view DataBindings::bind_input(size_t number, const void* address) {
  // No launch writes to it.
  auto* const memory = static_cast<std::byte*>(const_cast<void*>(address));
  return bind(plan_.inputs.at(number), inputs_.at(number), memory, false);
}

std::string_view DataBindings::bind_output(size_t number, void* address) {
  auto* const memory = static_cast<std::byte*>(address);
  return bind(plan_.outputs.at(number), outputs_.at(number), memory, true);
}

void DataBindings::queue_inputs() const {
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (inputs_[i].copied != nullptr)
      backend_.copy_on_device(stream_,
                              inputs_[i].own,
                              inputs_[i].copied,
                              static_cast<size_t>(plan_.inputs[i].type.bytes()));
}

void DataBindings::queue_outputs() const {
  for (size_t i = 0; i < outputs_.size(); ++i)
    if (outputs_[i].copied != nullptr)
      backend_.copy_on_device(stream_,
                              outputs_[i].copied,
                              outputs_[i].own,
                              static_cast<size_t>(plan_.outputs[i].type.bytes()));
}

}  // namespace ridge
