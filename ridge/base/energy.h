// Energy that the processors of this machine take, as they count it themselves (RAPL).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ridge {

/// Counters of all processor packages. What lies within a package (cores, graphics) is in its count
/// and is not added to it; memory outside of it and the platform as a whole are not in the sum.
class EnergyMeter {
 public:
  /// `folder` is that of the kernel's powercap interface outside tests.
  explicit EnergyMeter(std::string folder = "/sys/class/powercap");

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

  std::vector<Counter> counters_;
  std::string problem_;
};

}  // namespace ridge
