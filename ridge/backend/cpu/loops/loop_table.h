// Loops that make a byte of one byte, as tables of 256 results.
#pragma once

#include "ridge/backend/cpu/loop.h"

namespace ridge::cpu {

/// Whether the loop only stores bytes each of which is a function of one byte of i8 or u8: all else
/// that it reads are constants.
bool is_function_of_byte(const Loop& loop);

/// A kernel of such a loop. The results of all bytes come from the kernel that `make` gives, once,
/// and so have its bits; null where it gives none.
std::unique_ptr<LoopKernel> make_table_loop(const Loop& loop,
                                            std::unique_ptr<LoopKernel> (*make)(const Loop&));

}  // namespace ridge::cpu
