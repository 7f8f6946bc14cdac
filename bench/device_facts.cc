// Tells what a device is to the engine, and which libraries the engine opened for it. It is the
// first program that bench/gpu_smoke.py runs.
//
//   bench_device_facts [DEVICE]
//
// Writes one JSON object: `hardware` is the name under which choices of kernels are kept, `notes`
// are the lines on what the engine does without, and `libraries` holds version and path of each
// library that the process has loaded by then, the driver and the recorder of traces included. A
// path is null where no such library was loaded.
#include <dlfcn.h>
#include <fmt/core.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "bench/exit_code.h"
#include "ridge/base/json_writer.h"
#include "ridge/base/trace/trace.h"
#include "ridge/run/backends.h"

namespace {

template <typename Function>
Function* as(void* symbol) {
  Function* function = nullptr;
  std::memcpy(&function, &symbol, sizeof function);
  return function;
}

std::string driver_version(void* symbol) {
  int version = 0;
  as<int(int*)>(symbol)(&version);
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}
std::string nvrtc_version(void* symbol) {
  int major = 0, minor = 0;
  as<int(int*, int*)>(symbol)(&major, &minor);
  return fmt::format("{}.{}", major, minor);
}
std::string version_number(void* symbol) { return fmt::format("{}", as<size_t()>(symbol)()); }
std::string cupti_version(void* symbol) {
  uint32_t version = 0;
  as<int(uint32_t*)>(symbol)(&version);
  return fmt::format("{}", version);
}

/// A library is known by the function that returns its version, whatever its file is called.
struct Known {
  const char* name;
  const char* function;
  std::string (*version)(void* symbol);
};
constexpr std::array<Known, 5> kKnown = {{{"driver", "cuDriverGetVersion", driver_version},
                                          {"NVRTC", "nvrtcVersion", nvrtc_version},
                                          {"cuBLASLt", "cublasLtGetVersion", version_number},
                                          {"cuDNN", "cudnnGetVersion", version_number},
                                          {"CUPTI", "cuptiGetVersion", cupti_version}}};

std::set<std::string> loaded_libraries() {
  std::set<std::string> paths;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (const size_t at = line.find('/'); at != line.npos && line.find(".so", at) != line.npos)
      paths.insert(line.substr(at));
  return paths;
}

/// Null where the library itself has no such function: those that it needs do not count.
void* own_symbol(const std::string& path, const char* function) {
  void* const library = ::dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  void* const symbol = ::dlsym(library, function);
  Dl_info from{};
  std::error_code ignored;
  const bool is_own = symbol != nullptr && ::dladdr(symbol, &from) != 0 &&
                      std::filesystem::equivalent(from.dli_fname, path, ignored);
  ::dlclose(library);
  return is_own ? symbol : nullptr;
}

void write_libraries(ridge::JsonWriter& json) {
  const std::set<std::string> paths = loaded_libraries();
  json.key("libraries").begin_array();
  for (const Known& known : kKnown) {
    json.begin_object().field("name", known.name);
    bool is_found = false;
    for (const std::string& path : paths) {
      void* const symbol = own_symbol(path, known.function);
      if (symbol == nullptr || is_found) continue;
      is_found = true;
      json.field("version", known.version(symbol)).field("path", path);
    }
    if (!is_found) json.field("path", nullptr);
    json.end_object();
  }
  json.end_array();
}

void run(const std::string& device) {
  std::vector<std::string> notes;
  const auto backend =
      ridge::make_backend(device, [&](const std::string& note) { notes.push_back(note); });
  // A recorder is opened for a trace alone.
  ridge::start_tracing();
  ridge::stop_tracing();
  for (const std::string& note : ridge::drain_trace().notes) notes.push_back(note);
  std::string text;
  ridge::JsonWriter json(text);
  json.begin_object().field("device", device).field("hardware", backend->hardware());
  write_libraries(json);
  json.key("notes").begin_array();
  for (const std::string& note : notes) json.value(note);
  json.end_array().end_object().finish();
  fmt::print("{}", text);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 2) {
    fmt::print(stderr, "usage: bench_device_facts [DEVICE]\n");
    return 2;
  }
  return ridge::bench::exit_code([&] { run(argc == 2 ? argv[1] : "cuda"); });
}
