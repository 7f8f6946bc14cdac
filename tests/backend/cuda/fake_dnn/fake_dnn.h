// The controls of the stand-in for cuDNN (fake_cudnn.cc), which computes on the host, in the order
// of the stand-in driver's streams, from the descriptors that it is given.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "tests/backend/cuda/fake_library.h"

namespace ridge::test {

/// An engine that the stand-in proposes for every graph.
struct FakeEngine {
  int64_t index = 1;
  std::map<int, int64_t> knobs = {};
  std::vector<int> numerical_notes = {};
  std::vector<int> behavior_notes = {};
  size_t workspace_bytes = 0;
  int plan_status = 0;  ///< Status of making a plan of it.
};

class FakeDnn : public FakeLibrary {
 public:
  /// In this order: of mode A, and of the fallback mode.
  virtual void set_engines(std::vector<FakeEngine> best, std::vector<FakeEngine> fallback) = 0;

  size_t version = 92801;
  bool is_wrong = false;  ///< In one element of the results.
};

inline constexpr const char* kFakeDnnEntry = "fake_dnn";
using FakeDnnEntry = FakeDnn*();

}  // namespace ridge::test
