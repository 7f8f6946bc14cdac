// The most that a change of a program in PyTorch could gain: the whole of a step over what stays of
// it if the part that the change is about cost nothing.
#pragma once

#include <optional>

#include "ridge/tune/pytorch/step_shares.h"
#include "ridge/tune/pytorch/technique.h"

namespace ridge {

/// Parts of a step, as shares of it, 0 to 1; nothing: not known.
struct PartShares {
  double wait = 0;                 ///< It waits for data.
  std::optional<double> update{};  ///< The optimizer updates.
  std::optional<OperatorShares> operators{};
  std::optional<double> faults{};  ///< At most this goes into mapping pages of memory.
};

/// Nothing where the parts say nothing of the change.
std::optional<double> ceiling_of(const ForeignProposal& proposal, const PartShares& parts);

}  // namespace ridge
