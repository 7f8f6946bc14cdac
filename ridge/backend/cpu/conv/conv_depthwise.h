// Convolution with one input channel and one output channel a group.
#pragma once

#include <memory>

#include "ridge/backend/cpu/conv/conv_patches.h"
#include "ridge/backend/cpu/gemm/product_kernel.h"
#include "ridge/backend/host.h"
#include "ridge/base/function_ref.h"

namespace ridge::cpu {

/// Adds the choice "depthwise" of conv2d and of its two gradients.
void add_depthwise_kernels(KernelTable& table);

/// Makes rows of pixels [begin, end), counted over all images; they are valid until the next call.
using MakePixels = FunctionRef<const float*(int64_t begin, int64_t end)>;

/// Writes rows of pixels [begin, end), counted over all images.
using WritePixels = FunctionRef<void(int64_t begin, int64_t end, float* to)>;

/// A depthwise f32 convolution, some rows of an image at a time, of an input that is made as it is
/// needed. The bits are those of the kernel of conv2d.
class DepthwiseForward {
 public:
  /// At most `most_elements` of x lie somewhere at a time.
  static bool accepts(const ConvGeometry& g, int64_t most_elements);
  DepthwiseForward(const ConvGeometry& g, int64_t most_elements);

  /// Bands of all images together: about `wanted`, where there are rows enough. Rows of x that two
  /// bands see are made twice.
  int64_t bands(int64_t wanted) const;
  /// Band `band` of `bands` of y from `window`, most_elements of memory. `finish` may be null; it
  /// is called with each row of y once that is final.
  void run_band(int64_t band,
                int64_t bands,
                float* window,
                WritePixels write_x,
                const float* w,
                float* y,
                const FinishRange* finish = nullptr) const;

 private:
  class Body;
  std::shared_ptr<const Body> body_;
};

/// Both gradients of a depthwise f32 convolution, some rows of an image at a time, where dy is made
/// as it is needed. The bits are those of the two kernels.
class DepthwiseGradients {
 public:
  struct Part {
    const float* w;
    float* dx;
    MakePixels make_x, make_dy;
    float* sums;  // gradient of the weights, sums() elements
  };

  /// At most `most_elements` of dy, and where x is made too of both together, are made at a time.
  static bool accepts(const ConvGeometry& g, int64_t most_elements, bool makes_x);
  DepthwiseGradients(const ConvGeometry& g, int64_t most_elements, bool makes_x);

  int64_t parts() const;
  int64_t sums() const;
  /// Elements of dy that are made at a time, at most.
  int64_t most_of_dy() const;
  /// Part `part` of dx, and its sums.
  void run_part(int64_t part, const Part& to) const;
  /// Adds up the sums (parts(), sums()), which it uses.
  void combine(float* sums, float* dw) const;

 private:
  class Body;
  std::shared_ptr<const Body> body_;
};

}  // namespace ridge::cpu
