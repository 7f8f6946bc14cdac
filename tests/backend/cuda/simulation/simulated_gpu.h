// A GPU on a CPU: the threads of a block are fibers that run one after another to the next place
// where they have to meet. Kernels see it as simt.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace simt {

inline constexpr size_t kWarpLanes = 32;
/// Bytes of a block's dynamic shared memory.
inline constexpr size_t kMostShared = 227 << 10;
extern unsigned char dynamic_shared[kMostShared];
extern size_t dynamic_shared_bytes;  ///< Bytes of the block that runs.
extern size_t current;               ///< The thread of the block that runs.

// ---- between simt.cc and simt_mma.cc ----

/// A kernel did what hangs or breaks a GPU: ends the test.
[[noreturn]] void fail(const char* why);
/// Room for a block of so many threads.
void prepare_mma(size_t threads);
/// At the end of a thread.
void check_copies();

}  // namespace simt
