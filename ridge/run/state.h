// The buffers that live from run to run: parameters, moments, gradients, statistics.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "ridge/backend/backend.h"
#include "ridge/base/tensor.h"
#include "ridge/compile/plan.h"

namespace ridge {

/// All state of a program, in one piece of device memory. Not for use while an entry runs.
class State {
 public:
  /// Zeros everywhere, every page in memory. `plan` and `backend` must outlive it.
  State(const Plan& plan, Backend& backend);

  std::span<const PlanSlot> slots() const { return plan_.state; }
  StateRole role(size_t slot) const { return plan_.roles.at(slot); }
  bool has(std::string_view name) const { return find_slot(plan_.state, name) != nullptr; }

  /// UserError when there is no such buffer (the nearest is named) or the type is another.
  void write(std::string_view name, const Tensor& tensor);
  Tensor read(std::string_view name) const;
  /// `bytes` bytes of a buffer from byte `first` on, for callers that have no memory for it twice.
  void write_part(const PlanSlot& slot, size_t first, const void* host, size_t bytes);

  /// The buffer's address in device memory; the host may use it where Backend::is_host().
  void* data(const PlanSlot& slot) const;
  void* base() const { return memory_.get(); }

 private:
  const PlanSlot& get(std::string_view name) const;

  const Plan& plan_;
  Backend& backend_;
  DeviceMemory memory_;
  std::unique_ptr<Stream> stream_;
};

/// True for what a checkpoint keeps: all but gradients, which are zero between steps, and what is
/// made from parameters.
bool is_saved(StateRole role);

/// Device memory of zeros, with every page touched: what is planned is resident from the start.
DeviceMemory resident_memory(Backend& backend, int64_t bytes);

}  // namespace ridge
