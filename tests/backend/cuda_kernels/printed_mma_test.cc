// The stand-ins for tensor cores and asynchronous copies (simt_mma.cc) themselves: kernels written
// here by NVIDIA's tables of fragments, against plain products.
#include <gtest/gtest.h>

#include <random>

#include "ridge/base/dtype.h"
#include "tests/backend/cuda_kernels/printed_on_host.h"

namespace ridge::test {
namespace {

// A kernel of one launch over pointers.
cuda::PrintedKernel kernel(const std::string& name,
                           const std::string& parameters,
                           const std::string& body,
                           size_t inputs,
                           size_t outputs,
                           uint32_t threads = 32) {
  cuda::PrintedKernel made;
  made.name = name;
  made.source =
      "#include \"ridge/backend/cuda/device/mma.h\"\nnamespace ridge::cuda {\nextern \"C\" "
      "__global__ void " +
      name + "(" + parameters + ") {\n" + body + "}\n}\n";
  cuda::KernelLaunch launch{
      .entry = name, .threads = threads, .shared_bytes = 2048, .operands = {}};
  for (size_t i = 0; i < inputs; ++i) launch.operands.push_back({cuda::KernelOperand::kInput, i});
  for (size_t i = 0; i < outputs; ++i) launch.operands.push_back({cuda::KernelOperand::kOutput, i});
  made.launches.push_back(std::move(launch));
  return made;
}

struct Factors {
  explicit Factors(uint64_t seed) : a(16 * 16), b(16 * 8), c(16 * 8) {
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<float> number(-2, 2);
    for (auto* const each : {&a, &b})
      for (BF16& x : *each) x = convert<BF16>(number(random));
    for (float& x : c) x = number(random);
  }
  // a b + c, in the order of rows.
  std::vector<float> product() const {
    std::vector<float> y(c.size());
    for (size_t i = 0; i < 16; ++i)
      for (size_t j = 0; j < 8; ++j) {
        double sum = c[i * 8 + j];
        for (size_t k = 0; k < 16; ++k)
          sum += convert<double>(a[i * 16 + k]) * convert<double>(b[k * 8 + j]);
        y[i * 8 + j] = static_cast<float>(sum);
      }
    return y;
  }

  std::vector<BF16> a, b;
  std::vector<float> c;
};

// Every register filled by hand, from the tables.
const char* const kByHand = R"(
  const int lane = threadIdx.x, g = lane >> 2, t = lane % 4;
  auto pair = [](BF16 low, BF16 high) { return uint32_t(high.bits) << 16 | low.bits; };
  uint32_t left[4] = {pair(a[g * 16 + 2 * t], a[g * 16 + 2 * t + 1]),
                      pair(a[(g + 8) * 16 + 2 * t], a[(g + 8) * 16 + 2 * t + 1]),
                      pair(a[g * 16 + 2 * t + 8], a[g * 16 + 2 * t + 9]),
                      pair(a[(g + 8) * 16 + 2 * t + 8], a[(g + 8) * 16 + 2 * t + 9])};
  uint32_t low = pair(b[2 * t * 8 + g], b[(2 * t + 1) * 8 + g]);
  uint32_t high = pair(b[(2 * t + 8) * 8 + g], b[(2 * t + 9) * 8 + g]);
  float sums[4] = {c[g * 8 + 2 * t], c[g * 8 + 2 * t + 1],
                   c[(g + 8) * 8 + 2 * t], c[(g + 8) * 8 + 2 * t + 1]};
  multiply_16(sums, left, low, high, BF16{});
  y[g * 8 + 2 * t] = sums[0], y[g * 8 + 2 * t + 1] = sums[1];
  y[(g + 8) * 8 + 2 * t] = sums[2], y[(g + 8) * 8 + 2 * t + 1] = sums[3];
)";

// The same out of shared memory: rows of 16 bytes, matrix after matrix. a has four matrices of
// 8 x 8, b two below each other, which are read transposed, twice.
const char* const kByMatrices = R"(
  RIDGE_DYNAMIC_SHARED(memory);
  const int lane = threadIdx.x, g = lane >> 2, t = lane % 4;
  BF16* const rows = reinterpret_cast<BF16*>(memory);
  for (int i = lane; i < 256; i += 32) rows[i] = a[i];
  for (int i = lane; i < 128; i += 32) rows[256 + i] = b[i];
  __syncwarp();
  SharedAddress at = shared_address(memory);
  uint32_t left[4], right[4];
  load_matrices(left, at + ((lane % 8 + lane / 8 % 2 * 8) * 32 + lane / 16 * 16));
  load_matrices_transposed(right, at + (512 + lane % 16 * 16));
  float sums[4] = {c[g * 8 + 2 * t], c[g * 8 + 2 * t + 1],
                   c[(g + 8) * 8 + 2 * t], c[(g + 8) * 8 + 2 * t + 1]};
  multiply_16(sums, left, right[0], right[1], BF16{});
  y[g * 8 + 2 * t] = sums[0], y[g * 8 + 2 * t + 1] = sums[1];
  y[(g + 8) * 8 + 2 * t] = sums[2], y[(g + 8) * 8 + 2 * t + 1] = sums[3];
)";

TEST(PrintedMma, TheStandInMultipliesAsTheTablesSay) {
  PrintedOnHost host;
  constexpr const char* kParameters = "const BF16* a, const BF16* b, const float* c, float* y";
  const cuda::PrintedKernel kernels[] = {kernel("by_hand", kParameters, kByHand, 3, 1),
                                         kernel("by_matrices", kParameters, kByMatrices, 3, 1)};
  for (const cuda::PrintedKernel& each : kernels) host.add(each);
  host.build();
  for (const uint64_t seed : {1, 2, 3}) {
    const Factors factors(seed);
    for (const cuda::PrintedKernel& each : kernels) {
      std::vector<float> y(16 * 8);
      host.run(each, {factors.a.data(), factors.b.data(), factors.c.data()}, {y.data()}, false);
      EXPECT_EQ(y, factors.product()) << each.name;
    }
  }
}

// Copied bytes are there once they were waited for, and no sooner; bytes that are not there are
// zero.
TEST(PrintedMma, CopiesAreAsLateAsTheyMayBe) {
  PrintedOnHost host;
  const cuda::PrintedKernel copies = kernel("copies",
                                            "const int32_t* x, int32_t* y",
                                            R"(
  RIDGE_DYNAMIC_SHARED(memory);
  const int32_t* const ints = reinterpret_cast<const int32_t*>(memory);
  SharedAddress at = shared_address(memory);
  copy_async<16>(at, x, true);
  copy_commit();
  copy_async<8>(at + 16, x + 4, true);
  copy_commit();
  copy_async<16>(at + 32, x + 8, false);
  copy_commit();
  y[0] = ints[0];
  copy_wait<2>();
  y[1] = ints[3], y[2] = ints[4];
  copy_wait<1>();
  y[3] = ints[5], y[4] = ints[8];
  copy_wait<0>();
  y[5] = ints[8];
)",
                                            1,
                                            1,
                                            1);
  host.add(copies);
  host.build();
  alignas(16) const int32_t x[12] = {10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21};
  std::vector<int32_t> y(6);
  host.run(copies, {x}, {y.data()}, false);
  EXPECT_EQ(y, (std::vector<int32_t>{-1, 13, -1, 15, -1, 0}));
}

TEST(PrintedMmaDeathTest, MisuseIsTold) {
  testing::FLAGS_gtest_death_test_style = "fast";
  PrintedOnHost host;
  const std::vector<std::pair<std::string, std::string>> misuses = {
      {"copy_async<16>(at, x, true);", "a thread ends before it waits"},
      {"copy_async<16>(at, x, true); copy_commit();", "a thread ends before it waits"},
      {"copy_async<16>(at + 8, x, true);", "is not aligned"},
      {"copy_async<16>(at, x + 1, true);", "is not aligned"},
      {"copy_async<16>(at + 2048, x, true);", "outside of the block's shared memory"},
      {"uint32_t to[4]; load_matrices(to, at + threadIdx.x * 8);", "is not aligned"},
      {"uint32_t to[4]; load_matrices(to, at + 2032 + threadIdx.x * 16);", "outside of the block"},
      {"uint32_t to[4]; if (threadIdx.x > 2) load_matrices(to, at);", "do not come to where"}};
  std::vector<cuda::PrintedKernel> kernels;
  for (const auto& [body, message] : misuses) {
    kernels.push_back(
        kernel(fmt::format("misuse_{}", kernels.size()),
               "const int32_t* x",
               "RIDGE_DYNAMIC_SHARED(memory); SharedAddress at = shared_address(memory);" + body,
               1,
               0));
    host.add(kernels.back());
  }
  host.build();
  alignas(16) const int32_t x[8] = {};
  for (size_t i = 0; i < kernels.size(); ++i)
    EXPECT_DEATH(host.run(kernels[i], {x}, {}, false), misuses[i].second) << misuses[i].first;
}

}  // namespace
}  // namespace ridge::test
