// The engine's streams and events on a GPU.
#pragma once

#include <memory>

#include "ridge/backend/cuda/driver/host_copies.h"
#include "ridge/backend/cuda/driver/node_kernel.h"
#include "ridge/backend/cuda/fault_table.h"

namespace ridge::cuda {

/// A stream whose synchronize() also hands over what was copied to the host, and reports wrong data
/// that kernels have found. `copies` and `faults` must outlive it.
class EngineStream final : public StreamOnGpu {
 public:
  EngineStream(DeviceRef device, HostCopies& copies, FaultTable& faults)
      : stream_(std::move(device)), copies_(copies), faults_(faults) {}
  ~EngineStream() override;

  cuda::Stream& driver_stream() override { return stream_; }
  std::unique_ptr<ridge::Event> make_event() override;
  void record(ridge::Event& event) override;
  void wait(ridge::Event& event) override;
  void synchronize() override;

 private:
  cuda::Stream stream_;
  HostCopies& copies_;
  FaultTable& faults_;
};

}  // namespace ridge::cuda
