// The arithmetic of measurements on the stand-in for the driver, on which each copy and kernel
// takes a millisecond and each event a microsecond; and each call failing in turn.
#include "ridge/backend/cuda/device_rates.h"

#include <array>
#include <optional>
#include <set>

#include "ridge/backend/cuda/driver/arena.h"
#include "tests/backend/cuda/fake_driver_test.h"
#include "tests/support/scale.h"

namespace ridge::cuda {
namespace {

constexpr double kMillisecond = 1e-3;
constexpr double kForEver = 1e9;  // the host's clock decides nothing here

class CudaRates : public FakeDriverTest {
 protected:
  CudaRates() { start(); }
  void start() {
    fake_.reset();
    fake_.memory_bytes = size_t{16} << 20;  // an eighth is 2 MiB
  }
  static Calibration measure() {
    Stream stream(device());
    return measure_device(stream, [](DType, int64_t) { return nullptr; });
  }
  std::set<int64_t> edges_;
};

TEST_F(CudaRates, CopiesAndTransfersAreBytesByTheDevicesTime) {
  const Calibration rates = measure();
  constexpr double kBytes = 2 << 20;
  // Four copies, of 1 ms each, and the event behind them.
  constexpr double kSeconds = 4 * kMillisecond;
  EXPECT_NEAR(rates.copy_bytes_per_s / (2 * 4 * kBytes / kSeconds), 1, 1e-3);
  EXPECT_NEAR(rates.pinned.to_device / (4 * kBytes / kSeconds), 1, 1e-3);
  EXPECT_NEAR(rates.pinned.to_host / (4 * kBytes / kSeconds), 1, 1e-3);
  EXPECT_NEAR(rates.pageable.to_device / (4 * kBytes / kSeconds), 1, 1e-3);
  EXPECT_NEAR(rates.pageable.to_host / (4 * kBytes / kSeconds), 1, 1e-3);
  // The stand-in takes a graph as one piece of work.
  EXPECT_NEAR(rates.graph_node_s * 200 / kMillisecond, 1, 2e-3);
  EXPECT_GT(rates.launch_s, 0);
  EXPECT_TRUE(rates.flops_per_s.empty());
}

TEST_F(CudaRates, HostMemoryIsOfTheKindItIsCalled) {
  measure();
  int pinned = 0, pageable = 0;
  for (const std::string& line : lines({"cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2"}))
    (line.find("pageable") == std::string::npos ? pinned : pageable) += 1;
  EXPECT_EQ(pinned, 2 * 4 * 6);
  EXPECT_EQ(pageable, pinned);
}

TEST_F(CudaRates, ProductsGrowUntilOneTakesLongEnough) {
  const DeviceRef gpu = device();
  const Arena some(gpu, 64);
  Stream stream(gpu);
  const auto make = [&](int kernels) -> MakeProduct {
    return [&, kernels](DType dtype, int64_t edge) -> std::function<void()> {
      if (dtype != DType::kF32) return nullptr;
      edges_.insert(edge);
      const int of_edge = edge >= 1024 ? kernels : 1;
      return [&, of_edge] {
        for (int i = 0; i < of_edge; ++i) stream.fill(some.at(0, 64), 0, 64);
      };
    };
  };
  const Calibration rates = measure_device(stream, make(5), kForEver);
  EXPECT_EQ(edges_, (std::set<int64_t>{64, 128, 256, 512, 1024}));
  ASSERT_EQ(rates.flops_per_s.size(), 1u);
  // The best of them: 512 in 1 ms is below 1024 in 5 ms.
  EXPECT_NEAR(rates.flops_per_s.at(DType::kF32) / (2.0 * (1 << 30) / (5 * kMillisecond)), 1, 1e-3);
  edges_.clear();
  measure_device(stream, make(1), kForEver);
  EXPECT_EQ(*edges_.rbegin(), 8192);
  edges_.clear();
  measure_device(stream, make(1), 0);
  EXPECT_EQ(edges_, std::set<int64_t>{64});
}

TEST_F(CudaRates, EachCallMayFail) {
  fake_.memory_bytes = size_t{8} << 20;
  measure();
  std::vector<std::string> calls;
  for (const std::string& line : fake_.log()) calls.push_back(line.substr(0, line.find(' ')));
  size_t looked_at = 0;
  const size_t every = test::is_full_scale() ? 1 : 5;
  for (size_t n = 0; n < calls.size(); ++n) {
    if (n > 0 && calls[n] == calls[n - 1]) continue;  // one of equal calls in a row is enough
    if (looked_at++ % every != 0) continue;
    const int code = std::array{2, 999, 719}[n % 3];
    SCOPED_TRACE(fmt::format("call {} ({}) fails with {}", n + 1, calls[n], code));
    start();
    fake_.memory_bytes = size_t{8} << 20;
    fake_.fail("", static_cast<int64_t>(n) + 1, code);
    const std::optional<CudaError> error = error_of(measure);
    const bool is_quiet =
        destroys(calls[n]) || calls[n] == "cuCtxSynchronize" || calls[n] == "cuCtxSetCurrent";
    if (!is_quiet) {
      ASSERT_TRUE(error);
      EXPECT_EQ(error->call(), calls[n]);
    }
    expect_clean();
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace ridge::cuda
