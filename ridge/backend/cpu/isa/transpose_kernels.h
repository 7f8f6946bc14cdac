// Tiles of a transposition, one set for each instruction set.
#pragma once

#include <cstdint>

namespace ridge::cpu {

/// The distance of each line from the first, in bytes: a multiple of `stride`, or read from
/// `table`, which then has one for each line.
struct LineOffsets {
  int64_t stride = 0;
  const int64_t* table = nullptr;
};

/// Element (r, c) lies at from + r * element + from_cols[c] and goes to to + to_rows[r] + c *
/// element (all in bytes). One side has a table at most.
struct TransposeTile {
  const char* from;
  char* to;
  int64_t rows;
  int64_t cols;
  LineOffsets from_cols;
  LineOffsets to_rows;
};

struct TransposeKernels {
  void (*by_size[5])(const TransposeTile&);  // for elements of 1, 2, 4, 8 and 16 bytes

  auto of_bytes(int64_t bytes) const { return by_size[__builtin_ctzll(bytes)]; }
};

namespace avx2 {
extern const TransposeKernels transpose_kernels;
}
namespace avx512 {
extern const TransposeKernels transpose_kernels;
}

}  // namespace ridge::cpu
