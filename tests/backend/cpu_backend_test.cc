// The CPU backend as a whole: what it offers, what it measures.
#include "ridge/backend/cpu/cpu_backend.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

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

// Memory of the heap and pages of its own, some of which others have used before.
TEST(CpuBackend, ZerosAreInMemory) {
  const auto cpu = make_cpu_backend();
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  for (const size_t bytes : {size_t{1}, size_t{5000}, size_t{3} << 20, (size_t{9} << 20) + 77}) {
    for (int i = 0; i < 3; ++i) {
      const DeviceMemory used(*cpu, bytes);
      std::memset(used.get(), 0xff, bytes);
    }
    const DeviceMemory zeros = DeviceMemory::zeros(*cpu, bytes);
    const auto* const first = static_cast<const char*>(zeros.get());
    auto* const begin = reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(first) / page * page);
    const auto size = static_cast<size_t>(first + bytes - begin);
    std::vector<unsigned char> is_resident((size + page - 1) / page);
    ASSERT_EQ(mincore(begin, size, is_resident.data()), 0);
    EXPECT_TRUE(std::all_of(
        is_resident.begin(), is_resident.end(), [](unsigned char each) { return each & 1; }));
    EXPECT_TRUE(std::all_of(first, first + bytes, [](char each) { return each == 0; })) << bytes;
  }
}

}  // namespace
}  // namespace ridge::test
