// The forms of products of bytes that this machine has, and their peaks.
#include "ridge/backend/cpu/gemm/gemm_i8_form.h"

#include <algorithm>

#include "ridge/backend/cpu/cpu_isa.h"
#include "ridge/backend/cpu/gemm/gemm_i8.h"
#include "ridge/base/clock.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/base/error.h"

namespace ridge::cpu {

std::string_view name_of(I8Form form) {
  static constexpr std::string_view kNames[] = {"avx2", "avx-vnni", "avx512-vnni", "amx-int8"};
  return kNames[static_cast<size_t>(form)];
}

bool has_i8_form(I8Form form) {
  switch (form) {
    case I8Form::kAvx2:
      return true;
    case I8Form::kAvxVnni:
      return cpu_info().avx_vnni;
    case I8Form::kVnni512:
      return has_avx512() && cpu_info().vnni;
    case I8Form::kAmx:
      return has_amx() && cpu_info().amx_int8;
  }
  throw InternalError("[gemm_i8] form out of range");
}

I8Form best_i8_form() {
  I8Form best = I8Form::kAvx2;
  for (const I8Form form : kAllI8Forms)
    if (has_i8_form(form)) best = form;
  return best;
}

const GemmI8Kernels& i8_kernels(I8Form form) {
  switch (form) {
    case I8Form::kAvx2:
      return avx2::gemm_i8_kernels;
    case I8Form::kAvxVnni:
      return avx2::gemm_i8_vnni_kernels;
    case I8Form::kVnni512:
      return avx512::gemm_i8_vnni_kernels;
    case I8Form::kAmx:
      return avx512::gemm_i8_amx_kernels;
  }
  throw InternalError("[gemm_i8] form out of range");
}

double measure_i8_peak(I8Form form, int runs) {
  check_internal(has_i8_form(form), "[gemm_i8] there is no {} here", name_of(form));
  const auto multiply = i8_kernels(form).multiply_in_registers;
  const int64_t threads = num_threads(), rounds = form == I8Form::kAmx ? 15'000 : 150'000;
  int32_t sink = 0;
  const double operations = multiply(1, &sink) * static_cast<double>(rounds * threads);
  double best = 0;
  for (int run = 0; run < runs; ++run) {
    const int64_t start = now_ns();
    parallel_for(threads, 1, [&](int64_t, int64_t) {
      int32_t own = 0;
      multiply(rounds, &own);
    });
    best = std::max(best, operations * 1e9 / static_cast<double>(now_ns() - start));
  }
  return best;
}

}  // namespace ridge::cpu
