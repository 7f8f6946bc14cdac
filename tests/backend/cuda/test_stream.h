// The engine's stream, as far as kernels of libraries need it.
#pragma once

#include "ridge/backend/cuda/driver/node_kernel.h"

namespace ridge::cuda {

class TestStream final : public StreamOnGpu {
 public:
  explicit TestStream(DeviceRef device) : stream_(std::move(device)) {}
  cuda::Stream& driver_stream() override { return stream_; }
  std::unique_ptr<ridge::Event> make_event() override { return nullptr; }
  void record(ridge::Event&) override {}
  void wait(ridge::Event&) override {}
  void synchronize() override { stream_.synchronize(); }

 private:
  cuda::Stream stream_;
};

}  // namespace ridge::cuda
