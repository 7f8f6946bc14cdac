// How a matrix product is cut. The bits depend on the shape alone, the tasks on the threads too.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ridge/backend/cpu/gemm/gemm.h"

namespace ridge::cpu {

/// Longest fma chain; of pairs, so many pairs. With the plan's `depth` it decides the bits of every
/// result; all else in a plan decides only the speed.
inline constexpr int64_t kGemmDepth = 384;
/// Most columns of any kernel's tile; each kernel's number of columns divides it.
inline constexpr int64_t kGemmColumns = 32;
/// Most rows of any kernel's tile.
inline constexpr int64_t kGemmRows = 16;
/// Bytes of what a task packs at a time, on its stack: its rows, and a strip of its columns.
inline constexpr int64_t kGemmBlockBytes = 320 * kGemmDepth * 4;
inline constexpr int64_t kGemmStripBytes = 64 * kGemmDepth * 4;

/// Most rows of a thin product, and most bytes of a task's sums.
inline constexpr int64_t kThinRows = 16;
inline constexpr int64_t kThinBytes = 64 * 1024;

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
  bool swapped;  // compute the transpose of C: few columns become few rows
  GemmProducts products;
  int64_t pair;           // steps of depth that a packed element holds: 2 for kPairs, else 1
  bool converts;          // packing changes the elements: 16-bit types and rounded ones
  bool direct_a;          // read op(A) where it lies; never where packing converts
  int64_t tallest;        // no panel of rows is taller, whatever the kernel has
  bool direct_b;          // the same for op(B), if its rows are contiguous
  bool thin;              // few rows by a large op(B): each task a strip of columns, by gemm_thin.h
  bool fetch;             // operands are too large for the caches: fetch what will be packed next
  bool fetch_items;       // items of a batch are small: fetch a later one during each
  int64_t depth;          // steps of one fma chain; the last chain may be shorter
  int64_t strip_columns;  // packed at a time
  int64_t row_blocks, column_groups;  // tasks, each over the whole depth
  int64_t scratch_elements;           // f32 sums of 16-bit results over several chains, else 0

  int64_t packed(int64_t steps) const { return ceil_div(steps, pair); }
  int64_t tasks() const { return row_blocks * column_groups; }
  struct Block {
    Range rows, columns;
  };
  /// The part of the (transposed) product that a task makes.
  Block block(int64_t task) const {
    const Range group = part(ceil_div(n, strip_columns), column_groups, task / row_blocks);
    return {part(m, row_blocks, task % row_blocks),
            {group.begin * strip_columns, std::min(n, group.end * strip_columns)}};
  }
  /// The chain of depth that begins at p.
  Range chain(int64_t p) const { return {p, std::min(p + depth, k)}; }
};

/// InternalError for a shape that breaks the rules of GemmShape.
void check_gemm_shape(const GemmShape& shape);

GemmPlan make_gemm_plan(const GemmShape& shape, DType dtype, int64_t batch_count, int64_t threads);

/// The plan of a product whose op(B) lies packed, f32 or f64: rows are cut finer, as no task packs
/// columns, and so that a block of C and, where rows are gathered, those stay in the nearer caches.
GemmPlan make_packed_gemm_plan(const GemmShape& shape,
                               DType dtype,
                               bool gathers_rows,
                               int64_t threads);

/// The plan of a product whose op(A) is gathered as panels, which is done once for all columns
/// where rows suffice for the threads; `swapped` and `thin` plans cannot be run so.
GemmPlan make_gathered_gemm_plan(const GemmShape& shape, DType dtype, int64_t threads);

}  // namespace ridge::cpu
