// Queues of work on a device, and points in them.
#pragma once

#include <cstddef>

#include "ridge/backend/cuda/driver/device.h"

namespace ridge::cuda {

/// A point in the work of a stream, which other streams and the host can wait for.
class Event {
 public:
  enum class Timing { kOff, kOn };  ///< An event that keeps no time costs less.
  explicit Event(DeviceRef device, Timing timing = Timing::kOff);

  EventHandle handle() const { return event_.get(); }
  const Device& device() const { return event_.device(); }
  /// True when the work before it has run, or it was never recorded. Does not wait.
  bool is_done() const;
  /// Returns when it is done. CudaError also where that work failed.
  void synchronize() const;
  /// Seconds from `start` to this; both keep time and are done.
  double seconds_since(const Event& start) const;

 private:
  Owned<EventHandle> event_;
};

/// A queue of work, run in order. Two streams run side by side. Nothing here waits for the device
/// but synchronize(), and nothing allocates. Host memory of a copy is page-locked (PinnedMemory)
/// and stays as it is until the copy has run.
class Stream {
 public:
  explicit Stream(DeviceRef device);

  StreamHandle handle() const { return stream_.get(); }
  const Device& device() const { return stream_.device(); }
  const DeviceRef& device_ref() const { return stream_.device_ref(); }
  /// The event stands for all work queued so far.
  void record(const Event& event);
  /// Work queued from now on runs after what the event stands for now.
  void wait(const Event& event);
  /// Returns when all queued work has run; CudaError where that work failed.
  void synchronize();

  void copy_to_device(DevicePointer to, const void* from, size_t bytes);
  void copy_to_host(void* to, DevicePointer from, size_t bytes);
  void copy(DevicePointer to, DevicePointer from, size_t bytes);
  void fill(DevicePointer to, unsigned char value, size_t bytes);

 private:
  Owned<StreamHandle> stream_;
};

}  // namespace ridge::cuda
