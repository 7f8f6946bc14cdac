// A stand-in for NVIDIA's management library: it answers as its published reference says, from the
// environment. FAKE_NVML_DEVICES: how many (1); _INIT, _COUNT, _HANDLE_<n>: a result to return
// instead; _RESULTS: "power=3,memory=4": results of single functions; _LOST: the number of a device
// that is lost; _REASONS: the bits that hold clocks back; _NAME: of all devices; _UUID: of the
// first; _MILLIJOULES: what each has taken; "5000+20": 20 more each time that it is asked;
// _LOST_FILE: all are lost once there is such a file, which other threads may make. With
// FAKE_NVML_OLD it has only what drivers of 2016 had.
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

// NOLINTBEGIN(readability-identifier-naming): the names are those of the library.
namespace {

struct Utilization {
  unsigned gpu, memory;
};
struct Memory {
  unsigned long long total, free, used;
};
struct MemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
struct TemperatureV1 {
  unsigned version, sensor;
  int temperature;
};

int number(const std::string& name, int otherwise) {
  const char* const text = std::getenv(("FAKE_NVML_" + name).c_str());
  return text == nullptr ? otherwise : static_cast<int>(std::strtol(text, nullptr, 0));
}

// Devices are handed out as addresses in here.
char handles[64];
int open_count = 0;
unsigned long long energy_calls = 0;

int number_of(void* device) { return static_cast<int>(static_cast<char*>(device) - handles); }

// The result of a function for a device, before the function reads anything else.
int result_of(const std::string& function, void* device) {
  if (open_count == 0) return 1;
  if (device == nullptr || number_of(device) >= number("DEVICES", 1)) return 2;
  if (number("LOST", -1) == number_of(device)) return 15;
  const char* const lost = std::getenv("FAKE_NVML_LOST_FILE");
  if (lost != nullptr && ::access(lost, F_OK) == 0) return 15;
  const char* const all = std::getenv("FAKE_NVML_RESULTS");
  const std::string text = all == nullptr ? "" : std::string(",") + all;
  const size_t at = text.find("," + function + "=");
  if (at == std::string::npos) return 0;
  return std::atoi(text.c_str() + at + function.size() + 2);
}

std::string uuid_of(int device) {
  const char* const first = std::getenv("FAKE_NVML_UUID");
  if (first != nullptr && device == 0) return first;
  return "GPU-fa4e0000-" + std::to_string(device);
}

int give(char* to, unsigned length, const std::string& text) {
  if (text.size() + 1 > length) return 7;
  std::memcpy(to, text.c_str(), text.size() + 1);
  return 0;
}

}  // namespace

extern "C" {

int nvmlInit_v2() {
  energy_calls = 0;
  const int result = number("INIT", 0);
  if (result == 0) ++open_count;
  return result;
}

int nvmlShutdown() {
  if (open_count == 0) return 1;
  --open_count;
  return 0;
}

const char* nvmlErrorString(int result) {
  switch (result) {
    case 3:
      return "Not Supported";
    case 4:
      return "Insufficient Permissions";
    case 9:
      return "Driver Not Loaded";
    case 15:
      return "GPU is lost";
    case 18:
      return "Driver/library version mismatch";
    default:
      return "Unknown Error";
  }
}

int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(number("DEVICES", 1));
  return open_count == 0 ? 1 : number("COUNT", 0);
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  if (index >= sizeof handles) return 2;
  *device = handles + index;
  return open_count == 0 ? 1 : number("HANDLE_" + std::to_string(index), 0);
}

int nvmlDeviceGetName(void* device, char* name, unsigned length) {
  const char* const named = std::getenv("FAKE_NVML_NAME");
  const int result = result_of("name", device);
  return result != 0 ? result : give(name, length, named != nullptr ? named : "NVIDIA Fake 9000");
}

int nvmlDeviceGetUUID(void* device, char* uuid, unsigned length) {
  const int result = result_of("uuid", device);
  return result != 0 ? result : give(uuid, length, uuid_of(number_of(device)));
}

int nvmlDeviceGetUtilizationRates(void* device, Utilization* rates) {
  *rates = {87, 41};
  return result_of("utilization", device);
}

int nvmlDeviceGetMemoryInfo(void* device, Memory* memory) {
  *memory = {80ULL << 30, 49ULL << 30, 31ULL << 30};
  return result_of("memory", device);
}

int nvmlDeviceGetPowerUsage(void* device, unsigned* milliwatts) {
  *milliwatts = 412500;
  return result_of("power", device);
}

int nvmlDeviceGetClockInfo(void* device, unsigned type, unsigned* megahertz) {
  *megahertz = type == 1 ? 1215 : 2619;  // 1: the multiprocessors, 2: the memory
  return result_of("clock", device);
}

int nvmlDeviceGetMaxClockInfo(void* device, unsigned type, unsigned* megahertz) {
  *megahertz = type == 1 ? 1980 : 2619;
  return result_of("max_clock", device);
}

int nvmlDeviceGetTemperature(void* device, unsigned sensor, unsigned* celsius) {
  *celsius = 66;
  return sensor == 0 ? result_of("temperature", device) : 2;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void* device, unsigned long long* reasons) {
  *reasons = static_cast<unsigned long long>(number("REASONS", 4));
  return result_of("throttle_reasons", device);
}

#ifndef FAKE_NVML_OLD
int nvmlDeviceGetMemoryInfo_v2(void* device, MemoryV2* memory) {
  if (memory->version != (sizeof(MemoryV2) | 2U << 24)) return 25;
  *memory = {memory->version, 80ULL << 30, 1ULL << 30, 49ULL << 30, 30ULL << 30};
  return result_of("memory_v2", device);
}

int nvmlDeviceGetEnforcedPowerLimit(void* device, unsigned* milliwatts) {
  *milliwatts = 700000;
  return result_of("power_limit", device);
}

int nvmlDeviceGetTotalEnergyConsumption(void* device, unsigned long long* millijoules) {
  const char* const counted = std::getenv("FAKE_NVML_MILLIJOULES");
  char* end = nullptr;
  *millijoules = counted == nullptr ? 123456789012ULL : std::strtoull(counted, &end, 10);
  if (end != nullptr && *end == '+')
    *millijoules += energy_calls++ * std::strtoull(end + 1, nullptr, 10);
  return result_of("energy", device);
}

int nvmlDeviceGetTemperatureV(void* device, TemperatureV1* temperature) {
  if (temperature->version != (sizeof(TemperatureV1) | 1U << 24)) return 25;
  temperature->temperature = 67;
  return temperature->sensor == 0 ? result_of("temperature_v", device) : 2;
}

int nvmlDeviceGetCurrentClocksEventReasons(void* device, unsigned long long* reasons) {
  *reasons = static_cast<unsigned long long>(number("REASONS", 4));
  return result_of("event_reasons", device);
}
#endif

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
