// Matrix products of bytes with sums in i32, on the CPU.
//
// The arithmetic, which is all that decides the bits of a result. With rows i, columns j, depth p:
//
//   sum[i,j] = the sum over p of (a[i,p] - a_zero[i]) * (b[p,j] - b_zero[j]), modulo 2^32 as an i32
//   s[i,j]   = sum[i,j] + sum_bias[j], modulo 2^32 as an i32
//   x[i,j]   = ((f32(s[i,j]) * column_scale[j]) * row_scale[i]) + bias[j]
//   i32      : s[i,j]
//   f32      : x[i,j]
//   i8, u8   : the integer nearest to x[i,j] (of two, the even one), plus `zero`, or the nearer one
//              of the limits where it is beyond them; 0 for NaN
//
// Each operation of f32 is rounded to nearest even; scales and bias that are not there take no
// part. So results have the same bits for any instruction set and number of threads, and for any
// other rows and columns that are computed too.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "ridge/backend/cpu/gemm/gemm.h"
#include "ridge/backend/cpu/isa/gemm/gemm_i8_windows.h"
#include "ridge/base/dtype.h"

namespace ridge::cpu {

/// The instructions that multiply.
enum class I8Form : uint8_t {
  kAvx2,     ///< vpmaddwd of bytes widened to 16 bits.
  kAvxVnni,  ///< vpdpbusd in 256 bits.
  kVnni512,  ///< vpdpbusd in 512 bits.
  kAmx,      ///< tdpbusd.
};
inline constexpr I8Form kAllI8Forms[] = {
    I8Form::kAvx2, I8Form::kAvxVnni, I8Form::kVnni512, I8Form::kAmx};

/// "avx2", "avx-vnni", "avx512-vnni" or "amx-int8".
std::string_view name_of(I8Form form);
/// Whether the instruction set in use (cpu_isa.h) and the machine have it.
bool has_i8_form(I8Form form);
/// The last of kAllI8Forms that there is.
I8Form best_i8_form();

/// Operations per second of that form between registers (a product and an addition count two), on
/// all threads of parallel_for: the best of so many runs. InternalError where it is missing.
double measure_i8_peak(I8Form form, int runs = 5);

/// Which products: op(A) of i8 or u8, op(B) of i8 or u8. `shape.products` is not read.
struct I8Problem {
  GemmShape shape;
  GemmBatch batch;
  bool a_is_signed = true;
  bool b_is_signed = true;
  bool b_is_packed = false;  ///< op(B) is that of pack_i8(), for all items.
  I8Form form = best_i8_form();
};

/// Zero points, of the dtype of their operand; null: 0.
struct I8Zeros {
  const void* data = nullptr;
  bool each = false;  ///< One for each row of op(A) or column of op(B), else one for all.
};

struct I8Operands {
  const void* a = nullptr;
  const void* b = nullptr;  ///< 64-byte aligned where it is packed.
  I8Zeros a_zero, b_zero;
  /// Not null: op(A) is those windows, `a` is not read, and there is one item.
  const GemmI8Windows* windows = nullptr;
};

/// The results, row-major with shape.ldc. All items of a batch have the same scales and zero
/// points.
struct I8Results {
  void* c = nullptr;
  DType dtype = DType::kI32;            ///< i32, f32, i8 or u8.
  const float* row_scale = nullptr;     ///< (m), or null.
  const float* column_scale = nullptr;  ///< (n) or a single one; null for i32.
  bool has_scale_each_column = false;
  const float* bias = nullptr;        ///< (n), or null.
  const int32_t* sum_bias = nullptr;  ///< (n), or null.
  int32_t zero = 0;                   ///< The zero point of i8 and u8.
  int32_t low = -128, high = 255;     ///< Limits of i8 and u8, beside those of the type.

  int32_t least() const { return std::max(low, dtype == DType::kI8 ? -128 : 0); }
  int32_t most() const { return std::min(high, dtype == DType::kI8 ? 127 : 255); }
};

/// Bytes of op(B) packed: panels of 16 columns, of tiles of 64 steps of depth (gemm_i8_kernels.h),
/// as i8, and then an i32 for each column, the sum of what is packed of it; padded with zeros. They
/// are the same for any form.
size_t packed_i8_bytes(const GemmShape& shape);

/// Packs op(B) of a single item, on all threads; `to` is 64-byte aligned.
void pack_i8(const GemmShape& shape, const void* b, bool is_signed, void* to);

/// Bytes of workspace that gemm_i8 needs: those of op(B) packed, for more than 128 rows where it is
/// not packed beforehand; else 0. A thread has up to 520 KiB on its stack besides.
size_t gemm_i8_workspace_bytes(const I8Problem& problem);

/// Makes the results of each item of the batch. `workspace` has gemm_i8_workspace_bytes, at any
/// alignment; `finish` may be null. InternalError for a shape that breaks the rules, a form that
/// there is not, or results of another dtype.
void gemm_i8(const I8Problem& problem,
             const I8Operands& operands,
             const I8Results& results,
             void* workspace,
             const FinishBlock* finish = nullptr);

}  // namespace ridge::cpu
