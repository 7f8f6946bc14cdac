#include "ridge/backend/cuda/driver/module.h"

#include <array>

#include "ridge/base/html/markup.h"

namespace ridge::cuda {
namespace {

constexpr size_t kLogBytes = 8192, kMostLog = 1000;

Owned<ModuleHandle> load(DeviceRef device, const std::string& image, const std::string& name) {
  const Driver& driver = device->driver();
  std::array<char, kLogBytes> log{};
  // The size is passed in the place of a pointer.
  std::array<JitOption, 2> options = {JitOption::kErrorLog, JitOption::kErrorLogBytes};
  std::array<void*, 2> values = {log.data(), reinterpret_cast<void*>(kLogBytes - 1)};
  ModuleHandle module = nullptr;
  const Status status = driver.module_load_data(
      &module, image.c_str(), static_cast<unsigned>(options.size()), options.data(), values.data());
  if (log[0] != '\0')
    driver.check(status, "'{}': {}", name, shortened(log.data(), kMostLog));
  else
    driver.check(status, "'{}', {} bytes", name, image.size());
  return {
      std::move(device), module, &Driver::module_unload, Owned<ModuleHandle>::Before::kWaitForWork};
}

}  // namespace

Module::Module(DeviceRef device, const std::string& image, const std::string& name)
    : module_(load(std::move(device), image, name)), name_(name) {}

Kernel Module::kernel(const std::string& name, unsigned shared_bytes) const {
  const Driver& driver = module_.device().driver();
  Kernel kernel{.name = name};
  driver.check(driver.module_get_function(&kernel.handle, module_.get(), name.c_str()),
               "kernel '{}' of '{}'",
               name,
               name_);
  const auto ask = [&](FunctionAttribute attribute) {
    int value = 0;
    driver.check(driver.func_get_attribute(&value, attribute, kernel.handle),
                 "attribute {} of kernel '{}'",
                 static_cast<int>(attribute),
                 name);
    return value;
  };
  kernel.registers = ask(FunctionAttribute::kRegisters);
  kernel.local_bytes = ask(FunctionAttribute::kLocalBytes);
  kernel.static_shared_bytes = ask(FunctionAttribute::kStaticSharedBytes);
  kernel.most_threads = ask(FunctionAttribute::kMostThreads);
  // A launch gets 48 KiB without asking, of which static memory is a part.
  if (shared_bytes > 0)
    driver.check(
        driver.func_set_attribute(
            kernel.handle, FunctionAttribute::kDynamicSharedBytes, static_cast<int>(shared_bytes)),
        "{} bytes of shared memory beside {} static ones for kernel '{}'",
        shared_bytes,
        kernel.static_shared_bytes,
        name);
  return kernel;
}

void launch(Stream& stream,
            const Kernel& kernel,
            const LaunchShape& shape,
            std::span<void* const> arguments) {
  const Driver& driver = stream.device().driver();
  // The driver only reads them.
  auto** const parameters = const_cast<void**>(arguments.data());
  driver.check(driver.launch_kernel(kernel.handle,
                                    shape.grid_x,
                                    shape.grid_y,
                                    shape.grid_z,
                                    shape.block_x,
                                    shape.block_y,
                                    shape.block_z,
                                    shape.shared_bytes,
                                    stream.handle(),
                                    parameters,
                                    nullptr),
               "kernel '{}', grid {}x{}x{}, block {}x{}x{}, {} bytes of shared memory",
               kernel.name,
               shape.grid_x,
               shape.grid_y,
               shape.grid_z,
               shape.block_x,
               shape.block_y,
               shape.block_z,
               shape.shared_bytes);
}

}  // namespace ridge::cuda
