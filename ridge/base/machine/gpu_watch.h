// Samples one GPU now and then while a program runs on it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace ridge {

class Nvml;

/// The driver's last sample of the device; a value that the device does not report is -1 or empty.
struct GpuReading {
  double watts = -1;
  double joules = -1;  ///< Since the watch began.
  double sm_mhz = -1, celsius = -1;
  int64_t memory_bytes = -1;  ///< In use, by all programs.
  std::string held_by;        ///< Why clocks are below their most: "power limit, thermal limit".
};

/// Asks the driver in a thread of its own: it takes milliseconds to answer, which no step should
/// wait for.
class GpuWatch {
 public:
  /// Watches the GPU of that UUID; it takes the first sample at once, and each later one
  /// `period_ms` after the one before.
  explicit GpuWatch(std::string uuid,
                    int64_t period_ms = 500,
                    const std::string& nvml = "libnvidia-ml.so.1");
  GpuWatch(const GpuWatch&) = delete;
  GpuWatch& operator=(const GpuWatch&) = delete;
  ~GpuWatch();

  /// Why there is nothing to see, once and for all; empty where there is.
  const std::string& problem() const { return problem_; }
  /// Fills `reading`, and allocates nothing once it has held as long a text.
  void latest(GpuReading& reading) const;

 private:
  void take();
  void run(int64_t period_ms);

  std::string uuid_, problem_;
  std::unique_ptr<Nvml> nvml_;
  double first_joules_ = -1;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool is_over_ = false;
  GpuReading reading_;
  std::thread thread_;
};

}  // namespace ridge
