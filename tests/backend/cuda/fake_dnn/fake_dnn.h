// What a test asks of the stand-in for cuDNN (fake_cudnn.cc), which computes on the host, in the
// order of the stand-in driver's streams, from the descriptors that it is given.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace ridge::test {

/// What it proposes for every graph.
struct FakeEngine {
  int64_t index = 1;
  std::map<int, int64_t> knobs = {};
  std::vector<int> numerical_notes = {};
  std::vector<int> behavior_notes = {};
  size_t workspace_bytes = 0;
  int plan_status = 0;  ///< Of making a plan of it.
};

class FakeDnn {
 public:
  virtual ~FakeDnn() = default;

  /// All as at the start of the process. `driver`: the file of the stand-in driver.
  virtual void reset(const std::string& driver) = 0;
  virtual void set_version(size_t version) = 0;
  /// In this order: of mode A, and of the fallback mode.
  virtual void set_engines(std::vector<FakeEngine> best, std::vector<FakeEngine> fallback) = 0;
  /// Results come out wrong in one element.
  virtual void set_wrong(bool wrong) = 0;
  /// The `nth` call of that name from now on (an empty name: of any) returns `status`; what
  /// destroys does so all the same.
  virtual void fail(const std::string& call, int64_t nth, int status) = 0;

  /// A line a call.
  virtual std::vector<std::string> log() const = 0;
  virtual void clear_log() = 0;
  /// Names of what was made and not destroyed.
  virtual std::vector<std::string> live() const = 0;
  /// What no program may do.
  virtual std::vector<std::string> faults() const = 0;
};

inline constexpr const char* kFakeDnnEntry = "fake_dnn";
using FakeDnnEntry = FakeDnn*();

}  // namespace ridge::test
