// Elementwise kernels of one instruction set. An output may be one of the inputs of the same
// element size; other overlap is not allowed.
#pragma once

#include "ridge/backend/cpu/isa/elements.h"
#include "ridge/backend/cpu/isa/forms.h"

namespace ridge::cpu {

/// Ops of one and of two inputs: the places of their forms in UnaryForms and BinaryForms.
enum class UnaryOp : uint8_t {};
enum class BinaryOp : uint8_t {};

using UnaryKernel = void (*)(const void* x, void* y, int64_t n);
using BinaryKernel = void (*)(const void* a, const void* b, void* y, int64_t n);
/// y = condition ? a : b.
using WhereKernel =
    void (*)(const Bool8* condition, const void* a, const void* b, void* y, int64_t n);

/// Tables by op and dtype; null where the op does not take the dtype.
struct UnaryKernels {
  UnaryKernel by_op[kUnaryForms][kElements];
};
struct BinaryKernels {
  BinaryKernel by_op[kBinaryForms][kElements];
  WhereKernel where[4];  // by log2 of the element's size
};
struct CastKernels {
  UnaryKernel from_to[kElements][kElements];
};

namespace avx2 {
extern const UnaryKernels unary_kernels;
extern const BinaryKernels binary_kernels;
extern const CastKernels cast_kernels;
}  // namespace avx2

namespace avx512 {
extern const UnaryKernels unary_kernels;
extern const BinaryKernels binary_kernels;
extern const CastKernels cast_kernels;
}  // namespace avx512

}  // namespace ridge::cpu
