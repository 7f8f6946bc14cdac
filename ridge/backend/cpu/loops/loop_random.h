// Loops with dropout in terms of loops without: the random numbers come as one more stream.
#pragma once

#include "ridge/backend/cpu/loop.h"

namespace ridge::cpu {

bool has_dropout(const Loop& loop);

/// A kernel of a loop with dropout. `make` makes one of the loop in which each dropout is plain ops
/// on a stream of random numbers; these are drawn piece by piece, into the first cache. Null where
/// `make` gives none. A pass that reduces must not be longer than kReduceChunk.
std::unique_ptr<LoopKernel> make_random_loop(const Loop& loop,
                                             std::unique_ptr<LoopKernel> (*make)(const Loop&));

}  // namespace ridge::cpu
