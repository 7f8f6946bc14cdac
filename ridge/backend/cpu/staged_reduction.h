// A reduction as a chain of stages, each of which shrinks one run of axes.
#pragma once

#include <vector>

#include "ridge/backend/cpu/isa/reduce_kernels.h"
#include "ridge/base/type.h"

namespace ridge::cpu {

/// Elements of a row of one run of axes that become one partial result.
inline constexpr int64_t kReduceChunk = 2048;

class StagedReduction {
 public:
  enum Kind : uint8_t { kSum, kMax };

  /// Reduces x over `axes`; a sum is divided by `divisor` at the end.
  StagedReduction(const TensorType& x, const std::vector<int64_t>& axes, Kind kind, double divisor);

  size_t workspace_bytes() const { return workspace_bytes_; }
  void run(const void* x, void* y, void* workspace) const;

  // For those that compute what the first stage gives, in f32 or f64, themselves.
  /// Rows (or elements, where nothing is kept behind the reduced axes) that become one.
  int64_t first_chunk() const { return stages_.front().geometry.chunk; }
  /// The destination of the first stage's results: chunk by chunk, not yet divided.
  void* first_results(void* y, void* workspace) const;
  /// The rest.
  void finish(void* y, void* workspace) const;

 private:
  struct Stage {
    ReduceStage geometry;
    int64_t tiles;
    int64_t grain;
    int64_t results;
    size_t offset = 0;  ///< Bytes to the results in the workspace; the last stage has none.
  };
  struct Run;

  void plan(std::vector<Run> runs);
  void run_stage(size_t index, const void* x, void* y) const;
  void* results_of(size_t index, void* y, void* workspace) const;

  int dtype_;
  bool is_max_;
  bool is_widened_ = false;
  std::vector<Stage> stages_;
  size_t workspace_bytes_ = 0;
};

}  // namespace ridge::cpu
