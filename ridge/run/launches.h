// The kernels of a planned graph, in order, with the addresses that they are launched with.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ridge/base/function_ref.h"
#include "ridge/compile/plan.h"

namespace ridge {

/// One launch; its addresses stay where they are as long as it lives.
struct Launch {
  std::unique_ptr<NodeKernel> kernel;
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  void* workspace = nullptr;
  const PlanStep* step = nullptr;
  const char* trace_name = nullptr;
  int64_t bytes = 0;  ///< Read and written.

  /// Queues it; the UserError of a kernel then names the site. While tracing is on it is an event
  /// with the site's name.
  void queue(Stream& stream) const;
};

class Launches {
 public:
  /// `plan` is of `graph`, and outlives it.
  Launches(const Graph& graph, const EntryPlan& plan, Backend& backend);

  /// Makes all kernels ready.
  void prepare() const;
  /// Sets all addresses.
  void bind(FunctionRef<void*(const Place&)> address);
  /// Sets the address of one operand or result.
  void set(const LaunchOperand& which, void* address);
  void queue(Stream& stream) const {
    for (const Launch& launch : all_) launch.queue(stream);
  }

  auto begin() const { return all_.begin(); }
  auto end() const { return all_.end(); }

 private:
  std::vector<Launch> all_;
};

}  // namespace ridge
