// The binary interface is written down here from NVIDIA's published reference of NVML, as much of
// it as is called: no header of NVIDIA is needed, and no driver to build.
#include "ridge/base/machine/nvml.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "ridge/base/html/markup.h"

namespace ridge {
namespace {

using Device = void*;
using Result = int;

constexpr Result kSuccess = 0, kUninitialized = 1, kGpuIsLost = 15, kResetRequired = 16;
constexpr unsigned kClockSm = 1, kSensorGpu = 0;
constexpr unsigned kMostDevices = 1024;
constexpr size_t kTextBytes = 96;

struct Utilization {
  unsigned kernels, memory;  // percent
};
struct Memory {
  unsigned long long total, free, used;
};
// `used` is without what the driver keeps for itself.
struct MemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
struct TemperatureV1 {
  unsigned version, sensor;
  int celsius;
};
// A structure's version: its size, and the number of its layout in the uppermost byte.
constexpr unsigned kMemoryV2 = 40U | 2U << 24, kTemperatureV1 = 12U | 1U << 24;
static_assert(sizeof(MemoryV2) == 40 && sizeof(TemperatureV1) == 12);
static_assert(sizeof(Memory) == 24 && sizeof(Utilization) == 8);

using NumberCall = Result(Device, unsigned*);
using KindCall = Result(Device, unsigned, unsigned*);
using LongCall = Result(Device, unsigned long long*);
using TextCall = Result(Device, char*, unsigned);

struct Reason {
  unsigned long long bit;
  std::string_view words;
};
constexpr std::array<Reason, 9> kReasons = {{{0x1, "idle"},
                                             {0x2, "clocks set by a user"},
                                             {0x4, "power limit"},
                                             {0x8, "hardware slowdown"},
                                             {0x10, "boost in step with other GPUs"},
                                             {0x20, "thermal limit"},
                                             {0x40, "hardware thermal limit"},
                                             {0x80, "power brake"},
                                             {0x100, "display clocks"}}};

std::vector<std::string> words_of(unsigned long long reasons) {
  std::vector<std::string> found;
  for (const Reason& reason : kReasons) {
    if ((reasons & reason.bit) != 0) found.emplace_back(reason.words);
    reasons &= ~reason.bit;
  }
  if (reasons != 0) found.push_back(fmt::format("reason {:#x}", reasons));
  return found;
}

double share(unsigned percent) { return percent <= 100 ? 0.01 * percent : -1; }

int64_t bytes(unsigned long long count) {
  return count <= (1ULL << 60) ? static_cast<int64_t>(count) : -1;
}

}  // namespace

struct Nvml::Calls {
  struct Known {
    int32_t number = 0;
    Device device = nullptr;
    std::string name{}, uuid{};
    bool is_lost = false;
  };

  explicit Calls(const std::string& name);
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;
  ~Calls();

  /// Null where this version of the library has no such function.
  template <typename Function>
  void bind(Function*& function, const char* name) const {
    function = reinterpret_cast<Function*>(::dlsym(library, name));
  }
  void bind_values();
  void find_devices(const std::string& name);
  std::string error(Result result) const;
  std::string text(TextCall* call, Device device) const;
  void note(const std::string& trouble);
  /// Null where there is none, or it is lost.
  Known* find(std::string_view uuid);
  GpuSample sample(Known& known);

  /// A value that the device does not report, or may not report to us, stays as it is. False: no
  /// value.
  template <typename Function, typename... Args>
  bool ask(Function* function, Known& known, Args... args) {
    if (function == nullptr || known.is_lost) return false;
    const Result result = function(known.device, args...);
    if (result == kGpuIsLost || result == kResetRequired || result == kUninitialized) {
      known.is_lost = true;
      note(fmt::format("GPU {}: {}", known.number, error(result)));
    }
    return result == kSuccess;
  }
  void read_memory(Known& known, GpuSample& sample);
  void read_power(Known& known, GpuSample& sample);
  void read_clocks(Known& known, GpuSample& sample);

  void* library = nullptr;
  bool is_started = false;
  std::vector<Known> devices{};
  std::string problem{};

  Result (*init)() = nullptr;
  Result (*shutdown)() = nullptr;
  const char* (*error_string)(Result) = nullptr;
  Result (*count)(unsigned*) = nullptr;
  Result (*handle)(unsigned, Device*) = nullptr;
  TextCall *get_name = nullptr, *get_uuid = nullptr;
  Result (*get_utilization)(Device, Utilization*) = nullptr;
  Result (*get_memory)(Device, Memory*) = nullptr;
  Result (*get_memory_v2)(Device, MemoryV2*) = nullptr;
  NumberCall *get_power = nullptr, *get_power_limit = nullptr;
  LongCall *get_energy = nullptr, *get_reasons = nullptr, *get_reasons_before_535 = nullptr;
  KindCall *get_clock = nullptr, *get_most_clock = nullptr, *get_temperature = nullptr;
  Result (*get_temperature_v1)(Device, TemperatureV1*) = nullptr;
};

Nvml::Calls::Calls(const std::string& name) {
  library = ::dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) {
    problem = fmt::format("no NVIDIA driver ({})", plain_line(name));
    return;
  }
  bind(init, "nvmlInit_v2");
  bind(shutdown, "nvmlShutdown");
  bind(error_string, "nvmlErrorString");
  bind(count, "nvmlDeviceGetCount_v2");
  bind(handle, "nvmlDeviceGetHandleByIndex_v2");
  if (init == nullptr || count == nullptr || handle == nullptr) {
    problem = fmt::format("{} is not NVIDIA's library of this name, or older than 2012",
                          plain_line(name));
    return;
  }
  const Result result = init();
  if (result != kSuccess) {
    problem =
        fmt::format("the NVIDIA driver does not answer ({}: {})", plain_line(name), error(result));
    return;
  }
  is_started = true;
  bind_values();
  find_devices(name);
}

Nvml::Calls::~Calls() {
  if (is_started && shutdown != nullptr) shutdown();
  if (library != nullptr) ::dlclose(library);
}

void Nvml::Calls::bind_values() {
  bind(get_name, "nvmlDeviceGetName");
  bind(get_uuid, "nvmlDeviceGetUUID");
  bind(get_utilization, "nvmlDeviceGetUtilizationRates");
  bind(get_memory, "nvmlDeviceGetMemoryInfo");
  bind(get_memory_v2, "nvmlDeviceGetMemoryInfo_v2");
  bind(get_power, "nvmlDeviceGetPowerUsage");
  bind(get_power_limit, "nvmlDeviceGetEnforcedPowerLimit");
  bind(get_energy, "nvmlDeviceGetTotalEnergyConsumption");
  bind(get_clock, "nvmlDeviceGetClockInfo");
  bind(get_most_clock, "nvmlDeviceGetMaxClockInfo");
  bind(get_temperature, "nvmlDeviceGetTemperature");
  bind(get_temperature_v1, "nvmlDeviceGetTemperatureV");
  bind(get_reasons, "nvmlDeviceGetCurrentClocksEventReasons");
  bind(get_reasons_before_535, "nvmlDeviceGetCurrentClocksThrottleReasons");
}

void Nvml::Calls::find_devices(const std::string& name) {
  unsigned found = 0;
  const Result result = count(&found);
  if (result != kSuccess)
    return note(
        fmt::format("the NVIDIA driver shows no GPU ({}: {})", plain_line(name), error(result)));
  if (found == 0) return note(fmt::format("the NVIDIA driver shows no GPU ({})", plain_line(name)));
  for (unsigned i = 0; i < std::min(found, kMostDevices); ++i) {
    Known known{.number = static_cast<int32_t>(i)};
    const Result opened = handle(i, &known.device);
    if (opened == kSuccess) {
      known.name = text(get_name, known.device);
      known.uuid = text(get_uuid, known.device);
      devices.push_back(std::move(known));
    } else {
      note(fmt::format("GPU {}: {}", i, error(opened)));
    }
  }
}

std::string Nvml::Calls::error(Result result) const {
  const char* const words = error_string == nullptr ? nullptr : error_string(result);
  return words == nullptr ? fmt::format("error {}", result) : shortened(words, 120);
}

std::string Nvml::Calls::text(TextCall* call, Device device) const {
  std::array<char, kTextBytes> read{};
  if (call == nullptr || call(device, read.data(), kTextBytes) != kSuccess) return {};
  const auto end = std::find(read.begin(), read.end(), '\0');
  return plain_line({read.data(), static_cast<size_t>(end - read.begin())});
}

void Nvml::Calls::note(const std::string& trouble) {
  problem += problem.empty() ? trouble : "; " + trouble;
}

Nvml::Calls::Known* Nvml::Calls::find(std::string_view uuid) {
  for (Known& known : devices)
    if (known.uuid == uuid && !uuid.empty() && !known.is_lost) return &known;
  return nullptr;
}

void Nvml::Calls::read_memory(Known& known, GpuSample& sample) {
  MemoryV2 second{};
  second.version = kMemoryV2;
  Memory first{};
  if (ask(get_memory_v2, known, &second)) {
    sample.memory_bytes = bytes(second.used);
    sample.memory_total_bytes = bytes(second.total);
  } else if (ask(get_memory, known, &first)) {
    sample.memory_bytes = bytes(first.used);
    sample.memory_total_bytes = bytes(first.total);
  }
}

void Nvml::Calls::read_power(Known& known, GpuSample& sample) {
  unsigned milliwatts = 0;
  unsigned long long millijoules = 0;
  if (ask(get_power, known, &milliwatts)) sample.watts = 1e-3 * milliwatts;
  if (ask(get_power_limit, known, &milliwatts)) sample.watts_limit = 1e-3 * milliwatts;
  if (ask(get_energy, known, &millijoules)) sample.joules = 1e-3 * static_cast<double>(millijoules);
}

void Nvml::Calls::read_clocks(Known& known, GpuSample& sample) {
  unsigned value = 0;
  unsigned long long reasons = 0;
  TemperatureV1 temperature{.version = kTemperatureV1, .sensor = kSensorGpu, .celsius = 0};
  if (ask(get_clock, known, kClockSm, &value)) sample.sm_mhz = value;
  if (ask(get_most_clock, known, kClockSm, &value)) sample.most_sm_mhz = value;
  if (ask(get_temperature_v1, known, &temperature))
    sample.celsius = temperature.celsius;
  else if (ask(get_temperature, known, kSensorGpu, &value))
    sample.celsius = value;
  if (ask(get_reasons, known, &reasons) || ask(get_reasons_before_535, known, &reasons))
    sample.held_by = words_of(reasons);
}

GpuSample Nvml::Calls::sample(Known& known) {
  GpuSample sample{.number = known.number, .name = known.name, .uuid = known.uuid};
  Utilization utilization{};
  if (ask(get_utilization, known, &utilization)) {
    sample.kernel_time = share(utilization.kernels);
    sample.memory_time = share(utilization.memory);
  }
  read_memory(known, sample);
  read_power(known, sample);
  read_clocks(known, sample);
  return sample;
}

Nvml::Nvml(const std::string& library) : calls_(std::make_unique<Calls>(library)) {}

Nvml::~Nvml() = default;

const std::string& Nvml::problem() const { return calls_->problem; }

std::vector<GpuSample> Nvml::sample() const {
  std::vector<GpuSample> samples;
  for (Calls::Known& known : calls_->devices) {
    if (known.is_lost) continue;
    GpuSample sample = calls_->sample(known);
    if (!known.is_lost) samples.push_back(std::move(sample));
  }
  return samples;
}

std::optional<GpuSample> Nvml::sample(std::string_view uuid) const {
  Calls::Known* const known = calls_->find(uuid);
  if (known == nullptr) return std::nullopt;
  GpuSample sample = calls_->sample(*known);
  if (known->is_lost) return std::nullopt;
  return sample;
}

std::optional<double> Nvml::joules(std::string_view uuid) const {
  Calls::Known* const known = calls_->find(uuid);
  unsigned long long millijoules = 0;
  if (known == nullptr || !calls_->ask(calls_->get_energy, *known, &millijoules))
    return std::nullopt;
  return 1e-3 * static_cast<double>(millijoules);
}

}  // namespace ridge
