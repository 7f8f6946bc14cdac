// Reads the state of NVIDIA devices through NVML, the driver's library, which is opened at run
// time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ridge {

/// A value that the device does not report is -1 or empty.
struct GpuSample {
  int32_t number = 0;
  std::string name{}, uuid{};
  /// Share of the driver's last sample period in which any kernel ran, or memory was read or
  /// written: of time, not of throughput.
  double kernel_time = -1, memory_time = -1;
  int64_t memory_bytes = -1, memory_total_bytes = -1;
  double watts = -1, watts_limit = -1, joules = -1;  ///< Joules since the driver was loaded.
  double sm_mhz = -1, most_sm_mhz = -1, celsius = -1;
  /// Why clocks are below their most: "power limit", "thermal limit", "idle", ...
  std::vector<std::string> held_by{};
};

/// Reads all devices that the driver shows, whatever CUDA_VISIBLE_DEVICES says. The parts of a
/// device (MIG) are one sample, without what the driver reports of single parts. Not for more than
/// one thread at a time.
class Nvml {
 public:
  explicit Nvml(const std::string& library = "libnvidia-ml.so.1");
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  ~Nvml();

  /// Why there are no samples, as "no NVIDIA driver (libnvidia-ml.so.1)", or fewer than devices, as
  /// "GPU 1: GPU is lost"; empty where all is well.
  const std::string& problem() const;
  /// A device that is lost is left out from then on, and problem() names it.
  std::vector<GpuSample> sample() const;
  /// The sample of the device of that UUID alone; nothing where there is none, or it is lost.
  std::optional<GpuSample> sample(std::string_view uuid) const;
  /// Joules that it has taken since the driver was loaded; nothing where the driver does not report
  /// them.
  std::optional<double> joules(std::string_view uuid) const;

 private:
  struct Calls;
  std::unique_ptr<Calls> calls_;
};

}  // namespace ridge
