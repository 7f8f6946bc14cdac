// Adds a device's events to the trace of the program that runs on it.
#pragma once

#include "ridge/backend/cuda/driver/device.h"

namespace ridge::cuda {

/// While it lives, what start_tracing() begins records the device too: its kernels, copies and
/// fills on their streams, with the scopes that launched them, the calls of driver and runtime, and
/// what recording costs. All of it comes with the first drain_trace() after stop_tracing(), which
/// waits for the device. Where it cannot be recorded (no CUPTI, another profiler) the trace says
/// so in TraceLog::notes, and all else goes on.
class DeviceTrace {
 public:
  explicit DeviceTrace(DeviceRef device);
  DeviceTrace(const DeviceTrace&) = delete;
  DeviceTrace& operator=(const DeviceTrace&) = delete;
  ~DeviceTrace();

 private:
  DeviceRef device_;
};

}  // namespace ridge::cuda
