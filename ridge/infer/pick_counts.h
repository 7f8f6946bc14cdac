// How the kernels of a session's programs were picked.
#pragma once

#include <cstddef>
#include <string>

namespace ridge {

/// Nodes of the bindings that were compiled whose kernel time has picked. Those of one signature
/// count once a binding.
struct PickCounts {
  size_t timed = 0;       ///< Timed for that binding.
  size_t kept = 0;        ///< Found in the cache of picks.
  std::string note = {};  ///< Why picks could not be read or kept; empty: nothing is the matter.
};

}  // namespace ridge
