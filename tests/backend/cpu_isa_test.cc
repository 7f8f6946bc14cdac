#include "ridge/backend/cpu/cpu_isa.h"

#include <gtest/gtest.h>

#include "ridge/backend/cpu/peak.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/base/error.h"
#include "tests/support/errors.h"

namespace ridge::cpu {
namespace {

TEST(CpuIsa, AutoIsTheBestOfTheMachine) {
  const Isa best = has_isa(Isa::kAmx)      ? Isa::kAmx
                   : has_isa(Isa::kAvx512) ? Isa::kAvx512
                                           : Isa::kAvx2;
  EXPECT_EQ(choose_isa("auto"), best);
  EXPECT_EQ(choose_isa(""), best);
  EXPECT_EQ(choose_isa("avx2"), Isa::kAvx2);
}

TEST(CpuIsa, RefusesOtherNames) {
  EXPECT_THROW(choose_isa("sse2"), UserError);
  EXPECT_THROW(choose_isa("AVX2"), UserError);
}

TEST(CpuIsa, RefusesWhatTheMachineLacks) {
  CpuInfo old;
  for (const char* wish : {"auto", "avx2", ""})
    EXPECT_NE(test::user_error([&] {
                choose_isa(wish, old);
              }).find("lacks AVX2, FMA or F16C, which every kernel of Ridge needs; run it on"),
              std::string::npos);
  old.avx2 = true;
  EXPECT_EQ(choose_isa("auto", old), Isa::kAvx2);
  EXPECT_NE(test::user_error([&] { choose_isa("avx512", old); }).find("lacks AVX-512"),
            std::string::npos);
  old.avx512 = old.bf16 = true;
  EXPECT_EQ(choose_isa("auto", old), Isa::kAvx512);
  EXPECT_NE(test::user_error([&] { choose_isa("amx", old); }).find("lacks tiles of bf16 (AMX)"),
            std::string::npos);
  old.amx = true;
  EXPECT_EQ(choose_isa("auto", old), Isa::kAmx);
  EXPECT_EQ(choose_isa("avx512", old), Isa::kAvx512);
  if (has_isa(Isa::kAvx512)) return;
  EXPECT_THROW(set_isa(Isa::kAvx512), UserError);
}

TEST(CpuIsa, SetIsInUse) {
  const Isa before = isa();
  set_isa(Isa::kAvx2);
  EXPECT_EQ(isa(), Isa::kAvx2);
  const int first = 1, second = 2;
  EXPECT_EQ(for_isa(first, second), 1);
  set_isa(before);
  EXPECT_EQ(isa(), before);
}

// One core makes 2 to 64 FLOPs of f64 a cycle at 0.2 to 8 GHz, twice as many of f32, and up to 2048
// of bf16 in tiles. The limits are those of any machine: a ratio of two measurements would depend
// on what else runs during either of them.
TEST(Peak, IsPlausible) {
  const int threads = num_threads();
  set_num_threads(1);
  const double f64 = measure_fma_peak(DType::kF64);
  const double f32 = measure_fma_peak(DType::kF32);
  const double bf16 = measure_fma_peak(DType::kBF16);
  const double copy = measure_copy_bandwidth(size_t{4} << 20);
  set_num_threads(threads);
  constexpr double kSlow = 0.2e9, kFast = 8e9;
  EXPECT_GT(f64, kSlow * 2);
  EXPECT_LT(f64, kFast * 64);
  EXPECT_GT(f32, kSlow * 4);
  EXPECT_LT(f32, kFast * 128);
  EXPECT_GT(bf16, kSlow * 4);
  EXPECT_LT(bf16, kFast * 2048);
  EXPECT_GT(copy, 1e8);
  EXPECT_LT(copy, 1e13);
  EXPECT_THROW(measure_fma_peak(DType::kF16), InternalError);
}

}  // namespace
}  // namespace ridge::cpu
