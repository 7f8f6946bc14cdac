// How a matrix product is cut: a function of shape, dtype and batch count alone.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ridge/backend/cpu/gemm.h"

namespace ridge::cpu {

/// Longest fma chain. With the plan's `depth` it decides the bits of every result; all else in a
/// plan decides only the speed.
inline constexpr int64_t kGemmDepth = 384;
/// Most columns of any kernel's tile; each kernel's number of columns divides it.
inline constexpr int64_t kGemmColumns = 32;
/// Bytes of what a task packs on its stack: a strip of columns, and in the local plan its rows.
inline constexpr int64_t kGemmStripBytes = 64 * kGemmDepth * 4;
inline constexpr int64_t kGemmLocalBytes = 96 * kGemmDepth * 4;

struct Range {
  int64_t begin;
  int64_t end;
  int64_t size() const { return end - begin; }
};

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

/// Part i of [0, total) cut into `parts` of nearly equal size.
inline Range part(int64_t total, int64_t parts, int64_t i) {
  return {total * i / parts, total * (i + 1) / parts};
}

/// All sizes in elements; m and n are those of the transposed product when `swapped`.
struct GemmPlan {
  int64_t m, n, k;
  bool swapped;           // compute the transpose of C: few columns become few rows
  bool local;             // no workspace: each task packs on its stack what it packs
  bool direct_a;          // local, not for 16-bit types: reads op(A) where it lies
  bool direct_b;          // the same for op(B), if its rows are contiguous
  int64_t depth;          // of one fma chain; the last one may be shorter
  int64_t strip_columns;  // packed at a time by a task
  int64_t block_rows;     // local: of one task; else: what meets a strip before the next panel
  // Local: tasks are blocks of rows by groups of columns. Else, for each super_m rows, super_n
  // columns and chain of depth: pack the rows, then row_groups by column_groups tasks.
  int64_t super_m, super_n;
  int64_t row_groups, column_groups;
  int64_t packed_elements, scratch_elements;  // of the workspace, in the accumulator's type

  /// The chain of depth that begins at p.
  Range chain(int64_t p) const { return {p, std::min(p + depth, k)}; }
};

/// InternalError for a shape that breaks the rules of GemmShape.
GemmPlan make_gemm_plan(const GemmShape& shape, DType dtype, int64_t batch_count);

}  // namespace ridge::cpu
