#include "ridge/base/machine/energy.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "ridge/base/machine/nvml.h"
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

EnergyMeter::EnergyMeter(std::string folder, std::string gpu, const std::string& nvml)
    : EnergyMeter(std::move(folder)) {
  if (gpu.empty()) return;
  gpu_ = std::move(gpu);
  nvml_ = std::make_unique<Nvml>(nvml);
  last_joules_ = nvml_->joules(gpu_);
  problem_.clear();
  if (last_joules_) return;
  // The processors' part of what a program on a GPU takes would mislead.
  problem_ = nvml_->problem().empty() ? "the driver does not tell what the GPU takes"
                                      : "the GPU cannot be weighed: " + nvml_->problem();
  counters_.clear();
  nvml_.reset();
}

EnergyMeter::EnergyMeter(EnergyMeter&&) noexcept = default;
EnergyMeter::~EnergyMeter() = default;

std::string EnergyMeter::what() const {
  if (nvml_ == nullptr) return counters_.empty() ? "" : "all processor packages";
  return counters_.empty() ? "the GPU" : "all processor packages and the GPU";
}

std::optional<double> EnergyMeter::take() {
  // Each is asked, whatever the other says: their counts begin anew with each call.
  const std::optional<double> processors = take_processors(), gpu = take_gpu();
  if (nvml_ == nullptr) return processors;
  if (counters_.empty() || !gpu) return gpu;
  if (!processors) return std::nullopt;
  return *processors + *gpu;
}

std::optional<double> EnergyMeter::take_gpu() {
  if (nvml_ == nullptr) return std::nullopt;
  const std::optional<double> now = nvml_->joules(gpu_);
  const std::optional<double> last = std::exchange(last_joules_, now);
  if (!now || !last || *now < *last) return std::nullopt;
  return *now - *last;
}

std::optional<double> EnergyMeter::take_processors() {
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
