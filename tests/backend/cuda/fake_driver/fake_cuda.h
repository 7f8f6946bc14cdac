// The controls of the stand-in for NVIDIA's driver (fake_cuda_driver.cc), which runs the work of
// streams on the host, keeps each call in a log, and fails where a test asks for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace ridge::test {

/// A kernel as it was launched; parameters have the bytes that they had then.
struct FakeLaunch {
  std::string kernel;
  unsigned grid[3], block[3], shared_bytes;
  std::vector<std::vector<std::byte>> parameters;

  template <typename T>
  T parameter(size_t index) const {
    T value{};
    if (parameters.at(index).size() != sizeof(T)) throw "another type than the kernel's";
    std::memcpy(&value, parameters[index].data(), sizeof(T));
    return value;
  }
  /// A parameter that is an address in device memory, which is host memory here.
  template <typename T>
  T* pointer(size_t index) const {
    return reinterpret_cast<T*>(parameter<unsigned long long>(index));
  }
};

/// Hears of each call that is in the log, on the thread that makes it: what a profiler would. May
/// not call the driver.
class FakeCallObserver {
 public:
  virtual ~FakeCallObserver() = default;
  virtual void begin() = 0;
  virtual void end(const std::string& line, int code) = 0;
};

/// The controls of any stand-in.
class FakeCalls {
 public:
  virtual ~FakeCalls() = default;

  /// The `nth` call of that name from now on (1: the next one; an empty name: of any) returns
  /// `code`; what destroys does so all the same, as the driver does.
  virtual void fail(const std::string& call, int64_t nth, int code) = 0;
  /// A line a call, in order.
  virtual std::vector<std::string> log() const = 0;
  virtual void clear_log() = 0;
  /// Names of what was made and not destroyed.
  virtual std::vector<std::string> live() const = 0;
  /// Faults that no program may make: handles that are not alive, work on memory that is gone.
  virtual std::vector<std::string> faults() const = 0;
};

/// After a code by which a device is lost all calls return it. The log has names for handles and
/// addresses: stream1, event2, memory1+64.
class FakeCuda : public FakeCalls {
 public:
  /// Null: nobody. It must live until it is replaced; reset() does not touch it.
  virtual void set_observer(FakeCallObserver* observer) = 0;

  /// When queued work runs, within the order of its stream and what it waits for.
  enum class Schedule {
    kAtOnce,  ///< Runs as soon as it may: a device of no time.
    kAtLast,  ///< When the host waits for it, and no more than it waits for: a missing wait shows.
    kRandom,  ///< By the seed, at each call.
  };
  /// All as at the start of the process; what lives is dropped.
  virtual void reset() = 0;
  virtual void set_schedule(Schedule schedule, uint64_t seed = 0) = 0;
  /// The byte that new memory is filled with, 0xcd from reset() on. Tests whose kernels compute
  /// nothing set 0, a value of each dtype, as constants are folded from what kernels leave.
  virtual void set_new_memory(unsigned char byte) = 0;
  /// The body of a kernel; it returns a code of the driver, 0 for fine. A kernel without one does
  /// nothing.
  using Body = std::function<int(const FakeLaunch&)>;
  virtual void on_kernel(const std::string& name, Body body) = 0;

  /// How many calls there were since the start or reset().
  virtual int64_t calls() const = 0;

  int version = 0;  ///< Version of CUDA, as 1000 * major + 10 * minor.
  int devices = 0, major = 0, minor = 0;
  size_t memory_bytes = 0;  ///< Modules and captured graphs take some of it, too.
  std::string device_name;
};

/// The one function of the stand-in that no driver has.
inline constexpr const char* kFakeCudaEntry = "fake_cuda";
using FakeCudaEntry = FakeCuda*();

}  // namespace ridge::test
