// Data of an entry that lie where the caller has them.
#pragma once

#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "ridge/run/launches.h"

namespace ridge {

/// The addresses of the inputs and outputs of one entry: their places in the arena, until one is
/// bound to another. Those that kernels cannot use are copied at each run.
class DataBindings {
 public:
  /// All must outlive it. The launches are queued on `stream` and have their addresses; `address`
  /// gives those of places.
  DataBindings(const EntryPlan& plan,
               Launches& launches,
               Backend& backend,
               Stream& stream,
               FunctionRef<void*(const Place&)> address);

  /// Null: the place in the arena again. Returns why it is copied; empty where it is not. On a
  /// device that runs beside the host, another address waits for the runs before.
  std::string_view bind_input(size_t number, const void* address);
  std::string_view bind_output(size_t number, void* address);
  /// Whether a launch got another address since this was asked.
  bool take_changed() { return std::exchange(is_changed_, false); }

  /// Queue the copies before and after the launches of a run.
  void queue_inputs() const;
  void queue_outputs() const;

 private:
  struct Datum {
    std::byte* own = nullptr;     ///< The place in the arena.
    std::byte* now = nullptr;     ///< The address of the launches.
    std::byte* copied = nullptr;  ///< An input is copied from there, an output to there; or null.
  };
  std::string_view bind(const PlanSlot& slot, Datum& datum, std::byte* address, bool is_output);
  std::string_view refusal(const PlanSlot& slot, const void* address, bool is_output) const;
  void set(const PlanSlot& slot, Datum& datum, std::byte* address);

  const EntryPlan& plan_;
  Launches& launches_;
  Backend& backend_;
  Stream& stream_;
  std::vector<Datum> inputs_, outputs_;
  bool is_changed_ = false;
};

}  // namespace ridge
