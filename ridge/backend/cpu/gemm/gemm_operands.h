// The operands of the GEMM drivers, with their strides; rows cut into panels; packing.
#pragma once

#include <algorithm>
#include <type_traits>
#include <utility>

#include "ridge/backend/cpu/gemm/gemm_plan.h"
#include "ridge/backend/cpu/half_rows.h"
#include "ridge/backend/cpu/isa/gemm/gemm_kernels.h"

namespace ridge::cpu {

// An operand as (lanes, depth): lanes are rows of op(A) or columns of op(B).
template <typename In>
struct Operand {
  const In* data;
  int64_t lane_stride;
  int64_t depth_stride;
  const In* at(int64_t lane, int64_t p) const {
    return data + lane * lane_stride + p * depth_stride;
  }
};

// The destination of results: element (i, j) goes to data[i * row_stride + j * col_stride].
template <typename T>
struct Result {
  T* data;
  int64_t row_stride;
  int64_t col_stride;
  Result at(int64_t i, int64_t j) const {
    return {data + i * row_stride + j * col_stride, row_stride, col_stride};
  }
};

// Rows of op(A) from `begin`, cut into panels of nearly equal height, the taller ones first: 8 rows
// for a tile of 6 become 4 and 4, not 6 and 2.
struct PanelledRows {
  PanelledRows(Range rows, int64_t tallest)
      : begin(rows.begin),
        count(rows.size()),
        panels(ceil_div(count, tallest)),
        height(count / panels),
        taller(count % panels) {}
  Range panel(int64_t i) const {
    const int64_t first = i * height + std::min(i, taller);
    return {first, first + height + (i < taller ? 1 : 0)};
  }

  int64_t begin;
  int64_t count;
  int64_t panels;
  int64_t height;
  int64_t taller;  // so many panels have one row more
};

// The operands of one product, as its plan has them.
template <typename In>
struct GemmOperands {
  GemmOperands(
      const GemmPlan& plan, const GemmShape& s, const In* a_data, const In* b_data, In* out)
      : a{a_data, s.transpose_a ? 1 : s.lda, s.transpose_a ? s.lda : 1},
        b{b_data, s.transpose_b ? s.ldb : 1, s.transpose_b ? 1 : s.ldb},
        c{out, s.ldc, 1} {
    if (!plan.swapped) return;
    std::swap(a, b);
    std::swap(c.row_stride, c.col_stride);
  }

  Operand<In> a;
  Operand<In> b;
  Result<In> c;
  const ComputeType<In>* panels = nullptr;  // op(B) where it was packed beforehand (GemmPanels)
  // Makes rows of op(A), which lies nowhere: as rows for such panels, else as panels.
  const GatherRows<In>* gather = nullptr;
};

inline const GemmKernel<float>& kernel_of(const GemmKernels& kernels, float) {
  return *kernels.f32;
}
inline const GemmKernel<double>& kernel_of(const GemmKernels& kernels, double) {
  return *kernels.f64;
}

// Pointers to elements in the types that the kernels take.
inline const float* bits_of(const float* p) { return p; }
inline const double* bits_of(const double* p) { return p; }
inline const F16Bits* bits_of(const F16* p) { return reinterpret_cast<const F16Bits*>(p); }
inline const BF16Bits* bits_of(const BF16* p) { return reinterpret_cast<const BF16Bits*>(p); }

template <typename In>
using BitsOf =
    std::remove_cv_t<std::remove_pointer_t<decltype(bits_of(static_cast<In*>(nullptr)))>>;

/// How panels of operands of type In are packed for products of that kind.
template <typename In>
PackGemmPanel<BitsOf<In>, ComputeType<In>> packing(const GemmKernels& kernels,
                                                   GemmProducts products) {
  const bool pairs = products == GemmProducts::kPairs;
  if constexpr (std::is_same_v<In, double>) {
    return kernels.pack_f64;
  } else if constexpr (std::is_same_v<In, F16>) {
    return kernels.pack_f16;
  } else if constexpr (std::is_same_v<In, BF16>) {
    return pairs ? avx512::gemm_pair_kernels.pack_bf16 : kernels.pack_bf16;
  } else {
    if (products == GemmProducts::kRounded) return kernels.pack_rounded;
    if (products == GemmProducts::kRoundedToF16) return kernels.pack_rounded_to_f16;
    return pairs ? avx512::gemm_pair_kernels.pack_f32 : kernels.pack_f32;
  }
}

// Steps of depth to pack at a time for all panels. Rows of the operand that run along the lanes are
// packed few steps at a time: that reads them in order, which suits the hardware's prefetching and
// address translation.
template <typename In>
int64_t pack_steps(const GemmPlan& plan, const Operand<In>& x) {
  if (x.lane_stride != 1) return plan.pair * kGemmDepth;
  return plan.pair == 2 ? 16 : 32;  // measured
}

/// Packs the panels of rows of op(A), one after another.
template <typename In>
void pack_rows(const GemmPlan& plan,
               const GemmKernels& kernels,
               const Operand<In>& a,
               const PanelledRows& rows,
               Range depth,
               ComputeType<In>* to) {
  const int64_t steps = pack_steps(plan, a);
  const auto pack = packing<In>(kernels, plan.products);
  for (int64_t p = depth.begin; p < depth.end; p += steps)
    for (int64_t i = 0; i < rows.panels; ++i) {
      const Range r = rows.panel(i);
      const int lanes = static_cast<int>(r.size());
      pack({bits_of(a.at(rows.begin + r.begin, p)),
            a.lane_stride,
            a.depth_stride,
            std::min(steps, depth.end - p),
            lanes,
            lanes,
            to + r.begin * plan.packed(depth.size()) + plan.packed(p - depth.begin) * lanes});
    }
}

}  // namespace ridge::cpu
