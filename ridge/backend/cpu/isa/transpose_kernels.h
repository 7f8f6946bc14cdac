// Tiles of a transposition, one set for each instruction set.
#pragma once

#include <cstdint>

namespace ridge::cpu {

/// Element (r, c) lies at from + r * element + c * from_col and goes to to + r * to_row + c *
/// element (all in bytes).
struct TransposeTile {
  const char* from;
  char* to;
  int64_t rows;
  int64_t cols;
  int64_t from_col;
  int64_t to_row;
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
