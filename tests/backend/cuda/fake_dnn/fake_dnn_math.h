// The arithmetic of the stand-in for cuDNN: by definition, in double, from sizes and strides.
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

/// One convolution, or one of the operations of a graph.
struct DnnStep {
  enum Kind : uint8_t {
    kForward,
    kGradInput,
    kGradWeight,
    kPointwise,
    kReduction,
    kMatmul,
    kReshape
  };
  Kind kind = kForward;
  /// "x", "w", "y" of a convolution; else "x", "b", "t" make "y". Operands with one element where
  /// "y" has more are spread over it.
  std::map<std::string, DnnData> tensors;
  std::vector<int64_t> strides, dilations, padding;  ///< Parameters of a convolution.
  double alpha = 1, beta = 0;
  int mode = 0;      ///< Mode of a pointwise operation or a reduction, as the library numbers it.
  int64_t axis = 0;  ///< The axis whose index is generated.

  void run() const;
  /// The tensor of the step's result.
  const DnnData& made() const;
  /// Empty: sizes fit together.
  std::string misfit() const;
};

/// A graph with all that it needs; it may run several times, of a captured graph.
struct DnnJob {
  std::vector<DnnStep> steps;
  std::vector<std::vector<std::byte>> memory;  ///< Tensors that pass between steps, and scalars.
  bool wrong = false;
  void* workspace = nullptr;
  size_t workspace_bytes = 0;

  /// Spoils the workspace first.
  void run() const;
};

}  // namespace ridge::test
