// The controls of the stand-in for cuBLASLt (fake_cublaslt.cc), which multiplies on the host, in
// the order of the stand-in driver's streams, from the descriptors that it is given.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/backend/cuda/fake_library.h"

namespace ridge::test {

/// An algorithm that the stand-in proposes.
struct FakeAlgorithm {
  int32_t id = 1;
  uint32_t tile = 1, split_k = 1, reduction = 0, swizzle = 0, custom = 0, stages = 0;
  uint16_t inner = 0, cluster = 0;
  size_t workspace_bytes = 0;
  int state = 0;
};

class FakeBlas : public FakeLibrary {
 public:
  /// In this order; those that take more workspace than a caller has are left out.
  virtual void set_algorithms(std::vector<FakeAlgorithm> algorithms) = 0;
  /// Products of i8 are refused whose second factor, column-major, has fewer columns; 0 from
  /// reset() on.
  virtual void set_fewest_columns_of_i8(uint64_t columns) = 0;
};

inline constexpr const char* kFakeBlasEntry = "fake_blas";
using FakeBlasEntry = FakeBlas*();

}  // namespace ridge::test
