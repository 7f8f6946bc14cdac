#include "ridge/backend/cuda/plugin.h"

#include "ridge/backend/cuda/device.h"

namespace ridge::cuda {
namespace {

std::unique_ptr<Backend> make_backend(int number) {
  const DeviceRef device = open_device(number);
  const DeviceFacts& facts = device->facts();
  throw UserError(fmt::format("the CUDA backend of ridge {} cannot run programs yet (cuda:{} is "
                              "there: {}, sm_{}{}, driver for CUDA {})",
                              RIDGE_VERSION,
                              facts.number,
                              facts.name,
                              facts.major,
                              facts.minor,
                              device->driver().version_text()),
                  "take --device cpu");
}

}  // namespace
}  // namespace ridge::cuda

extern "C" const ridge::cuda::Plugin* ridge_cuda_plugin() {
  static constexpr ridge::cuda::Plugin kPlugin = {RIDGE_VERSION, ridge::cuda::make_backend};
  return &kPlugin;
}
