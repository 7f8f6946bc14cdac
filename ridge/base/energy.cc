#include "ridge/base/energy.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "ridge/base/sysfs.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kZone = "intel-rapl:";  // on AMD processors too

// "intel-rapl:0", but not its parts: "intel-rapl:0:1". The mmio zones count the same packages
// again.
bool is_zone(std::string_view name) {
  return name.starts_with(kZone) && name.substr(kZone.size()).find(':') == std::string_view::npos;
}

std::optional<uint64_t> read_number(const std::string& path) {
  const std::string line = first_line(path);
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), value);
  if (error != std::errc() || end != line.data() + line.size()) return std::nullopt;
  return value;
}

// Folders of the packages, in order of their names.
std::vector<std::string> packages(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string path = it->path().string();
    if (is_zone(it->path().filename().string()) &&
        first_line(path + "/name").starts_with("package"))
      found.push_back(path);
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

EnergyMeter::EnergyMeter(std::string folder) {
  for (const std::string& package : packages(folder)) {
    Counter counter;
    counter.path = package + "/energy_uj";
    counter.range = read_number(package + "/max_energy_range_uj").value_or(0);
    counter.last = read_number(counter.path);
    if (!counter.last) {
      // A sum without one of the processors would be no sum.
      problem_ =
          fmt::format("{} cannot be read: it takes rights that this user has not", counter.path);
      counters_.clear();
      return;
    }
    counters_.push_back(std::move(counter));
  }
  if (counters_.empty())
    problem_ = fmt::format("this machine shows no energy counters (RAPL) in {}", folder);
}

std::optional<double> EnergyMeter::take() {
  if (counters_.empty()) return std::nullopt;
  double microjoules = 0;
  bool is_whole = true;
  for (Counter& counter : counters_) {
    const std::optional<uint64_t> now = read_number(counter.path);
    const std::optional<uint64_t> last = std::exchange(counter.last, now);
    const bool wrapped = now && last && *now < *last;
    is_whole = is_whole && now && last && (!wrapped || counter.range >= *last);
    if (!is_whole) continue;
    microjoules += static_cast<double>(wrapped ? counter.range - *last + *now : *now - *last);
  }
  if (!is_whole) return std::nullopt;
  return 1e-6 * microjoules;
}

}  // namespace ridge
