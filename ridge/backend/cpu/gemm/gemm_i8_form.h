// The kernels of a form of products of bytes.
#pragma once

#include "ridge/backend/cpu/gemm/gemm_i8.h"
#include "ridge/backend/cpu/isa/gemm/gemm_i8_kernels.h"

namespace ridge::cpu {

/// The kernels that has_i8_form() allows to call.
const GemmI8Kernels& i8_kernels(I8Form form);

}  // namespace ridge::cpu
