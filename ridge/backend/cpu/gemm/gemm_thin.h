// Products of few rows with an op(B) that the caches do not hold: bound by memory, so that op(B) is
// read once, where it lies, in long runs.
#pragma once

#include "ridge/backend/cpu/gemm/gemm_operands.h"

namespace ridge::cpu {

/// One task of a plan that is `thin`. T is float or double.
template <typename T>
void run_thin_gemm_task(const GemmPlan& plan,
                        const GemmOperands<T>& operands,
                        bool accumulate,
                        int64_t task);

}  // namespace ridge::cpu
