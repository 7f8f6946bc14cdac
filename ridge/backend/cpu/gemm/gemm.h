// Ridge's own packed matrix product on the CPU.
//
// Same bits for any number of threads and any instruction set: an element of C is the sum, in
// order, of one fma chain for each block of depth. The blocks depend on k alone, and up to k = 384
// there is one. So a row of C has the same bits whatever other rows or columns are computed too.
// Products by pairs (GemmProducts::kPairs) are a family with bits of their own: their chains are of
// vdpbf16ps, each of which adds two products, and up to k = 768 there is one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "ridge/base/dtype.h"
#include "ridge/base/function_ref.h"

namespace ridge::cpu {

/// The type in which elements are multiplied.
enum class GemmProducts : uint8_t {
  kOwn,           ///< Elements as they are; 16-bit ones are widened to f32.
  kRounded,       ///< f32 that is rounded to bf16 first.
  kRoundedToF16,  ///< f32 that is rounded to f16 first.
  kPairs,         ///< bf16, or f32 rounded to bf16, by vdpbf16ps: only where has_bf16_pairs().
};

/// Row-major matrices: op(A) is (m, k), op(B) is (k, n), C is (m, n); all three sizes at least 1.
/// A leading dimension is the distance between rows in elements, at least the length of a row:
/// lda >= k, or m when A is stored transposed; ldb >= n, or k; ldc >= n.
struct GemmShape {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  bool transpose_a = false;
  bool transpose_b = false;
  int64_t lda = 0;
  int64_t ldb = 0;
  int64_t ldc = 0;
  GemmProducts products = GemmProducts::kOwn;
};

/// `count` products of one shape, their operands so many elements apart. A stride of 0 shares A
/// or B; the matrices C must not overlap.
struct GemmBatch {
  int64_t count = 1;
  int64_t stride_a = 0;
  int64_t stride_b = 0;
  int64_t stride_c = 0;
};

/// A block of the result of an item of a batch.
struct GemmBlock {
  int64_t item = 0;
  int64_t row = 0, rows = 0;
  int64_t column = 0, columns = 0;
};
/// Called with each block of C once it is final, from any thread. All of them make up C.
using FinishBlock = FunctionRef<void(const GemmBlock&)>;

/// Bytes of workspace that gemm needs, for f32, f64, f16 or bf16: 0 but for 16-bit operands with
/// k above 384 (768 by pairs), which keep f32 sums there. What is packed lies on the stack of each
/// thread: up to 640 KiB.
size_t gemm_workspace_bytes(const GemmShape& shape, DType dtype, int64_t batch_count = 1);

/// C = op(A) op(B), plus the old C when `accumulate`. f16 and bf16 are summed in f32 and rounded
/// once, at the end. C must not overlap an operand. `workspace` has gemm_workspace_bytes, at any
/// alignment. T is float, double, F16 or BF16. InternalError for a shape that breaks the rules.
/// `finish` may be null.
template <typename T>
void gemm(const GemmShape& shape,
          const T* a,
          const T* b,
          T* c,
          bool accumulate,
          void* workspace,
          const FinishBlock* finish = nullptr);

/// gemm for each item of a batch, in parallel over items and tiles. `workspace` has
/// gemm_workspace_bytes of the batch's count.
template <typename T>
void gemm_batched(const GemmShape& shape,
                  const GemmBatch& batch,
                  const T* a,
                  const T* b,
                  T* c,
                  bool accumulate,
                  void* workspace,
                  const FinishBlock* finish = nullptr);

/// How op(B) lies when it is packed beforehand: (panels, steps of depth, columns), the columns
/// beyond n as zeros. The width depends on the instruction set.
struct GemmPanels {
  int64_t columns = 0;  ///< Columns of a panel.
  int64_t panels = 0;
};

/// The panels of op(B) that gemm_packed reads, f32 or f64; nothing where gemm reads a large op(B)
/// once, as it lies, or packs the other operand in its place. Nothing for pairs of bf16, either:
/// their rounding takes subnormal numbers for zeros, which no op does.
std::optional<GemmPanels> gemm_panels(const GemmShape& shape, DType dtype);

/// C = op(A) op(B) with the bits of gemm, for a shape that has gemm_panels. `panels` is 64-byte
/// aligned. T is float or double. Blocks are small enough for `finish` to find them in the caches.
template <typename T>
void gemm_packed(const GemmShape& shape,
                 const T* a,
                 const void* panels,
                 T* c,
                 const FinishBlock* finish = nullptr);

/// `steps` elements from `step` on of each of `rows` rows of op(A) from `row` on.
struct GemmRows {
  int64_t row = 0, rows = 0;
  int64_t step = 0, steps = 0;
};
/// Writes those elements row by row, from any thread.
template <typename T>
using GatherRows = FunctionRef<void(const GemmRows& rows, T* to)>;

/// gemm_packed of an op(A) that lies nowhere: its rows are gathered where they are multiplied.
template <typename T>
void gemm_packed(const GemmShape& shape,
                 GatherRows<T> gather,
                 const void* panels,
                 T* c,
                 const FinishBlock* finish = nullptr);

/// True where gemm_gathered takes a shape: f32 or f64, of more than a few rows and columns.
bool can_gather(const GemmShape& shape, DType dtype);

/// C = op(A) op(B) with the bits of gemm, for an op(A) that lies nowhere: a few of its rows are
/// gathered at a time where they are multiplied, element (i, p) of `rows` to to[p * rows.rows + i].
/// T is float or double.
template <typename T>
void gemm_gathered(const GemmShape& shape, GatherRows<T> gather, const T* b, T* c);

}  // namespace ridge::cpu
