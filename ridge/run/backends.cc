#include "ridge/run/backends.h"

#include <dlfcn.h>

#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "ridge/backend/cpu/cpu_backend.h"
#include "ridge/backend/cuda/plugin.h"
#include "ridge/backend/ref/ref_backend.h"
#include "ridge/base/html/markup.h"
#include "ridge/base/machine/machine.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostText = 300;  // bytes of a version or reason from another file

/// N of "cuda:N", 0 of "cuda"; none for a name of another device.
std::optional<int> cuda_number(std::string_view name) {
  constexpr std::string_view kCuda = "cuda";
  if (name == kCuda) return 0;
  if (!name.starts_with("cuda:")) return std::nullopt;
  const std::string_view digits = name.substr(kCuda.size() + 1);
  int number = -1;
  const auto [end, error] = std::from_chars(digits.begin(), digits.end(), number);
  if (error != std::errc() || end != digits.end() || number < 0)
    throw UserError(fmt::format("device '{}' names no GPU", shortened(name, 60)),
                    "write it as cuda:0, by the number of the GPU");
  return number;
}

/// The plugin lies beside the program. The environment alone names another: a configuration may
/// come from anywhere, and what it names would be loaded as code.
std::string plugin_path() {
  const char* const named = std::getenv("RIDGE_CUDA_PLUGIN");
  if (named != nullptr && *named != '\0') return named;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  return (program.parent_path() / "libridge_cuda.so").string();
}

const cuda::Plugin& open_cuda_plugin() {
  const std::string path = plugin_path();
  // Never closed: its code makes the backend's objects, and the text of its errors.
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  constexpr const char* kFix = "take libridge_cuda.so from the build that made this ridge";
  if (library == nullptr) {
    const char* const reason = ::dlerror();
    throw UserError(fmt::format("cannot open the CUDA backend '{}' ({})",
                                plain_line(path),
                                shortened(reason == nullptr ? "" : reason, kMostText)),
                    kFix);
  }
  auto* const entry = reinterpret_cast<cuda::PluginEntry*>(::dlsym(library, cuda::kPluginEntry));
  if (entry == nullptr)
    throw UserError(fmt::format("'{}' is no CUDA backend of Ridge: it has no function {}",
                                plain_line(path),
                                cuda::kPluginEntry),
                    kFix);
  const cuda::Plugin& plugin = *entry();
  if (std::string_view(plugin.version) != RIDGE_VERSION)
    throw UserError(fmt::format("the CUDA backend '{}' is of ridge {}, and this is ridge {}",
                                plain_line(path),
                                shortened(plugin.version, kMostText),
                                RIDGE_VERSION),
                    kFix);
  return plugin;
}

}  // namespace

std::vector<std::string> backend_names() { return {"cpu", "cuda", "ref"}; }

std::string device_fingerprint(std::string_view name, const Backend& backend) {
  const std::string hardware = backend.hardware();
  return hardware.empty() ? machine_fingerprint(name)
                          : fmt::format("{}; {}", machine_fingerprint(name), hardware);
}

std::string device_fingerprint(std::string_view name) {
  return device_fingerprint(name, *make_backend(name));
}

std::optional<int64_t> free_device_memory(std::string_view name) {
  const std::optional<int> number = cuda_number(name);
  return number ? std::optional(open_cuda_plugin().free_memory(*number)) : std::nullopt;
}

std::unique_ptr<Backend> make_backend(std::string_view name, const NoteListener& note) {
  if (name == "cpu") return make_cpu_backend();
  if (name == "ref") return make_ref_backend();
  if (const std::optional<int> number = cuda_number(name))
    return open_cuda_plugin().make_backend(*number, note);
  throw UserError(fmt::format("unknown device '{}'", name), did_you_mean(name, backend_names()));
}

}  // namespace ridge
