#pragma once

#include <span>
#include <vector>

#include "ridge/base/function_ref.h"
#include "ridge/io/safetensors.h"
#include "ridge/run/state.h"

namespace ridge::bench {

/// Calls `body` with the first values of `entries`, of seed 1.
inline void with_first_values(std::span<const StateEntry> entries,
                              Backend& backend,
                              FunctionRef<void(std::span<const TensorView>)> body) {
  State state(backend);
  state.declare(entries);
  state.initialize(1);
  std::vector<TensorView> views;
  for (const StateEntry& entry : entries)
    views.push_back({entry.name, entry.type, state.data(entry.name)});
  body(views);
}

}  // namespace ridge::bench
