// The controls of the stand-in for CUPTI (fake_cupti.cc), which records the calls that the stand-in
// for the driver gets, in the layout of NVIDIA's records.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ridge::test {

class FakeCupti {
 public:
  virtual ~FakeCupti() = default;

  /// All as at the start of the process.
  virtual void reset() = 0;
  /// Listens to the stand-in for the driver that lies in `path`.
  virtual void observe(const char* path) = 0;
  /// The `nth` call of that name from now on (1: the next one; an empty name: of any) returns
  /// `code` and does nothing.
  virtual void fail(const std::string& call, int64_t nth, int code) = 0;

  /// Names of all calls, in order.
  virtual std::vector<std::string> calls() const = 0;
  /// Resources that are left: subscribers, kinds that are on, buffers that were not handed back.
  virtual std::vector<std::string> live() const = 0;

  uint32_t version = 0;
  bool is_taken = false;  ///< Another profiler has it.
  /// At most so many records go into a buffer: the rest of it stays empty. 0: all that fit.
  size_t records_per_buffer = 0;
  /// Full buffers are handed back at the flush alone, the last one first.
  bool is_late_and_reversed = false;
  /// A record of a kind that nobody asked for goes before each of this many; 0: none.
  size_t strange_every = 0;
};

inline constexpr const char* kFakeCuptiEntry = "fake_cupti";
using FakeCuptiEntry = FakeCupti*();

}  // namespace ridge::test
