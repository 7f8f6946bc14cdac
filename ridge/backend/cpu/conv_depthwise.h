// Convolution with one input channel and one output channel a group.
#pragma once

#include <memory>

#include "ridge/backend/cpu/conv_patches.h"
#include "ridge/backend/host.h"
#include "ridge/base/function_ref.h"

namespace ridge::cpu {

/// Adds the choice "depthwise" of conv2d and of its two gradients.
void add_depthwise_kernels(KernelTable& table);

/// Both gradients of a depthwise f32 convolution, a few rows of an image at a time, where dy is
/// made as it is needed. The bits are those of the two kernels.
class DepthwiseGradients {
 public:
  /// dy for rows of pixels [begin, end), counted over all images, valid until the next call.
  using MakeRows = FunctionRef<const float*(int64_t begin, int64_t end)>;
  struct Part {
    const float* x;
    const float* w;
    float* dx;
    MakeRows make;
    float* sums;  // of the gradient of the weights, sums() of them
  };

  /// At most `most_elements` of dy are made at a time.
  static bool accepts(const ConvGeometry& g, int64_t most_elements);
  DepthwiseGradients(const ConvGeometry& g, int64_t most_elements);

  int64_t parts() const;
  int64_t sums() const;
  /// Part `part` of dx, and its sums.
  void run_part(int64_t part, const Part& to) const;
  /// Adds up the sums (parts(), sums()), which it uses.
  void combine(float* sums, float* dw) const;

 private:
  class Body;
  std::shared_ptr<const Body> body_;
};

}  // namespace ridge::cpu
