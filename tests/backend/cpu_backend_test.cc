// The CPU backend as a whole: what it offers, what it measures.
#include "ridge/backend/cpu/cpu_backend.h"

#include <gtest/gtest.h>

#include "tests/backend/cpu_runs.h"

namespace ridge::test {
namespace {

TEST(CpuBackend, Calibrates) {
  const CpuSettings restore;
  set_num_threads(1);
  const Calibration result = make_cpu_backend()->calibrate();
  for (DType dtype : kAllDTypes)
    EXPECT_EQ(result.flops_per_s.contains(dtype), is_float(dtype)) << name_of(dtype);
  // Any machine with AVX2 does some 16 multiply-adds of f32 a cycle, of f64 half as many; the
  // wide bounds leave room for a busy or throttled one.
  EXPECT_GT(result.flops_per_s.at(DType::kF32), 1e9);
  EXPECT_LT(result.flops_per_s.at(DType::kF32), 1e12);
  EXPECT_GT(result.copy_bytes_per_s, 1e8);
  EXPECT_LT(result.copy_bytes_per_s, 1e12);
  EXPECT_GT(result.launch_s, 0.0);
  EXPECT_LT(result.launch_s, 1e-3);
}

}  // namespace
}  // namespace ridge::test
