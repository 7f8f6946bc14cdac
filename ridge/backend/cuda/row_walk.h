// How the threads of a block go over the elements of a row, as text.
#pragma once

#include <string>
#include <string_view>

#include "ridge/backend/cuda/kernel_text.h"

namespace ridge::cuda {

enum class Walk : uint8_t {
  kInOrder,    ///< Each in its place of the tree of sums, by packs of four that are aligned.
  kUnaligned,  ///< The same by packs that are not.
  kSpread,     ///< All of them side by side, by packs that are aligned wherever the row begins.
};

/// The pack at column c of `row`, and the statement that stores it.
std::string load_text(Walk walk, std::string_view row);
std::string store_text(Walk walk, std::string_view row, std::string_view pack);

/// The loops that call `passN(packs, c)`, N = level: for a thread's place in the tree, from `begin`
/// to `end`, and for all threads of the block, where the first aligned element is at `head`.
void print_unaligned_loop(Lines& lines, int level, int unrolled);
void print_spread_loop(Lines& lines, int level, int unrolled, int64_t columns, int64_t threads);

}  // namespace ridge::cuda
