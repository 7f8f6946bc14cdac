// Energy that the processors of this machine take, as they count it themselves (RAPL), and a GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ridge {

class Nvml;

/// The kernel's powercap interface.
inline constexpr const char* kPowercap = "/sys/class/powercap";

/// Counters of all processor packages. What lies within a package (cores, graphics) is in its count
/// and is not added to it; memory outside of it and the platform as a whole are not in the sum.
class EnergyMeter {
 public:
  /// `folder` is kPowercap outside tests.
  explicit EnergyMeter(std::string folder = kPowercap);
  /// And of the GPU of that UUID, as the driver counts it: of a program that runs there. Without
  /// the GPU's count nothing is measured; without the processors' the GPU's alone.
  EnergyMeter(std::string folder, std::string gpu, const std::string& nvml = "libnvidia-ml.so.1");
  EnergyMeter(EnergyMeter&&) noexcept;
  ~EnergyMeter();

  /// The devices that are measured: "all processor packages and the GPU"; empty where none is.
  std::string what() const;

  /// Why nothing can be read; empty where something can.
  const std::string& problem() const { return problem_; }

  /// Joules since the last call, or since the meter was made: of everything that ran. A counter may
  /// begin anew in between, but once only: they take at least a minute for that. Nothing where a
  /// counter cannot be read.
  std::optional<double> take();

 private:
  struct Counter {
    std::string path;
    uint64_t range = 0;  ///< In microjoules, at which it begins anew; 0: unknown.
    std::optional<uint64_t> last;
  };

  std::optional<double> take_processors();
  std::optional<double> take_gpu();

  std::vector<Counter> counters_;
  std::string gpu_;
  std::unique_ptr<Nvml> nvml_;  ///< Null: no GPU is measured.
  std::optional<double> last_joules_;
  std::string problem_;
};

}  // namespace ridge
