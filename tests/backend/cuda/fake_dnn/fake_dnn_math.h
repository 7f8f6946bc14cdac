// What the stand-in for cuDNN computes: by definition, in double, from sizes and strides.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace ridge::test {

/// A tensor as its descriptor says, with its data where it has some.
struct DnnData {
  int type = 0;
  std::vector<int64_t> sizes, strides;
  void* data = nullptr;

  double read(const std::vector<int64_t>& at) const;
  void write(const std::vector<int64_t>& at, double x) const;
};

/// One operation with all that it needs; it may run several times, of a captured graph.
struct DnnJob {
  enum Kind : uint8_t { kForward, kGradInput, kGradWeight, kAttention, kAttentionGrad };
  Kind kind = kForward;
  std::map<std::string, DnnData> tensors;  ///< "x", "w", "y"; "q", "dk", "stats", ...
  std::vector<int64_t> strides, dilations, padding;
  double alpha = 1, beta = 0, scale = 1, fill = 0;
  bool causal = false, wrong = false;
  void* workspace = nullptr;
  size_t workspace_bytes = 0;

  /// Spoils the workspace first.
  void run() const;
  /// Empty: sizes fit together.
  std::string misfit() const;
};

}  // namespace ridge::test
