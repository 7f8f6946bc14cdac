// A GPU, and what every object made on it shares: it goes away in the end by itself.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "ridge/backend/cuda/driver/driver.h"
#include "ridge/backend/cuda/print/device_limits.h"

namespace ridge::cuda {

struct DeviceFacts {
  int number = 0;    ///< The number that the driver counts it by: 0 for cuda:0.
  std::string name;  ///< The driver's name for it, such as "NVIDIA H200".
  std::string uuid;  ///< The id that nvidia-smi shows: "GPU-", or "MIG-" for a slice, and five
                     ///< groups of hexadecimal digits.
  DeviceLimits limits;
  int64_t memory_bytes = 0;
  int copy_engines = 0;  ///< The number of copies that can run beside kernels.
  int64_t l2_bytes = 0;
};

/// The memory of a device, as the driver counts it now, all processes included.
struct DeviceMemoryUse {
  size_t free = 0, total = 0;
};

class Device;
/// Streams, memory and the rest hold one: the device goes after the last of them.
using DeviceRef = std::shared_ptr<const Device>;

/// A GPU whose primary context is held, and current to the thread that opened it. Other threads
/// call make_current() before they make objects or queue work.
class Device {
 public:
  /// UserError when there is no such GPU or it is older than sm_80; CudaError.
  Device(DriverRef driver, int number);
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device();

  const Driver& driver() const { return *driver_; }
  const DeviceFacts& facts() const { return facts_; }
  void make_current() const;
  /// The same, and no call of the driver where this thread made it current last.
  void ensure_current() const;
  DeviceMemoryUse memory_use() const;

  /// Destructors call these, for they cannot report errors: a lost device fails every call.
  void make_current_quietly() const noexcept;
  void wait_quietly() const noexcept;

 private:
  void read_facts(int number);

  DriverRef driver_;
  DeviceFacts facts_;
  uint64_t serial_;  ///< Number of this object: an address may be another's later.
  int handle_ = 0;
  ContextHandle context_ = nullptr;
};

/// GPU `number`, with the driver of Driver::default_name().
DeviceRef open_device(int number);

/// An object of the driver that destroys itself, on whichever thread.
template <typename Handle>
class Owned {
 public:
  using Destroy = Call<Handle> Driver::*;
  /// kWaitForWork makes destroying wait for queued work, which may still use the object.
  enum class Before { kNothing, kWaitForWork };

  Owned() = default;
  Owned(DeviceRef device, Handle handle, Destroy destroy, Before before = Before::kNothing)
      : device_(std::move(device)), handle_(handle), destroy_(destroy), before_(before) {}
  Owned(Owned&& other) noexcept
      : device_(std::move(other.device_)),
        handle_(std::exchange(other.handle_, Handle{})),
        destroy_(other.destroy_),
        before_(other.before_) {}
  Owned& operator=(Owned&& other) noexcept {
    if (this == &other) return *this;
    reset();
    device_ = std::move(other.device_);
    handle_ = std::exchange(other.handle_, Handle{});
    destroy_ = other.destroy_;
    before_ = other.before_;
    return *this;
  }
  ~Owned() { reset(); }

  Handle get() const { return handle_; }
  const Device& device() const { return *device_; }
  const DeviceRef& device_ref() const { return device_; }

 private:
  void reset() noexcept {
    if (handle_ == Handle{}) return;
    device_->make_current_quietly();
    if (before_ == Before::kWaitForWork) device_->wait_quietly();
    // An error here is one of earlier work, or the device is lost: the object is gone either way.
    static_cast<void>((device_->driver().*destroy_)(handle_));
    handle_ = Handle{};
  }

  DeviceRef device_;
  Handle handle_{};
  Destroy destroy_ = nullptr;
  Before before_ = Before::kNothing;
};

}  // namespace ridge::cuda
