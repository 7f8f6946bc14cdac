// What a test asks of the stand-in for cuBLASLt (fake_cublaslt.cc), which multiplies on the host,
// in the order of the stand-in driver's streams, from the descriptors that it is given.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ridge::test {

/// What it proposes.
struct FakeAlgorithm {
  int32_t id = 1;
  uint32_t tile = 1, split_k = 1, reduction = 0, swizzle = 0, custom = 0, stages = 0;
  uint16_t inner = 0, cluster = 0;
  size_t workspace_bytes = 0;
  int state = 0;
};

class FakeBlas {
 public:
  virtual ~FakeBlas() = default;

  /// All as at the start of the process. `driver`: the file of the stand-in driver.
  virtual void reset(const std::string& driver) = 0;
  /// In this order; those that take more workspace than a caller has are left out.
  virtual void set_algorithms(std::vector<FakeAlgorithm> algorithms) = 0;
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

inline constexpr const char* kFakeBlasEntry = "fake_blas";
using FakeBlasEntry = FakeBlas*();

}  // namespace ridge::test
