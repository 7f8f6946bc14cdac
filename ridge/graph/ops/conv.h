// Two-dimensional convolution over NHWC images, and its two gradients. All three are linear in each
// input, so each one's gradient is built of the other two. The plain form of each is a matrix
// product, one factor of which holds what the windows see.
#pragma once

#include <span>
#include <vector>

#include "ridge/graph/graph.h"

namespace ridge {

/// Geometry of a window that slides over height and width.
struct WindowFields {
  std::vector<int64_t> stride{1, 1};         ///< Vertical, horizontal.
  std::vector<int64_t> padding{0, 0, 0, 0};  ///< Top, left, bottom, right.
  std::vector<int64_t> dilation{1, 1};

  void visit(FieldVisitor& v);
  /// UserError unless the lists have their lengths and every entry is in range.
  void check_fields(std::string_view op) const;
  /// Positions of a window of `size` elements along dimension 0 (height) or 1 (width) of length
  /// `length`; UserError when it does not fit once.
  int64_t positions(int dimension, int64_t length, int64_t size, std::string_view op) const;
};

template <typename Self>
class Convolution : public OpOf<Self> {
 public:
  WindowFields window;
  int64_t groups = 1;
  bool tf32 = false;  ///< A backend that has TF32 may round inputs of f32 to its 11 bits.

  std::vector<Value> vjp(const VjpContext& c) const override;
  Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
};

constexpr OpTraits convolution_traits(std::string_view name) {
  return {.name = name,
          .min_inputs = 2,
          .max_inputs = 2,
          .dtypes = kFloats,
          .op_class = OpClass::kContraction,
          .gradient = Gradient::kRule,
          .linear = {.each = 3}};
}

/// x (N, H, W, C), w (KH, KW, C / groups, O) -> (N, OH, OW, O). Group g maps the g-th part of the
/// input channels to the g-th part of the output channels. Sums in f32 (f64 for f64).
class Conv2d final : public Convolution<Conv2d> {
 public:
  static constexpr OpTraits kTraits = convolution_traits("conv2d");
  std::vector<TensorType> infer(std::span<const TensorType> inputs) const override;
  std::vector<Value> expand(std::span<const Value> inputs) const override;
  std::vector<BatchFlow> batch_flow(const BatchFlowContext& c) const override;
  void fields(FieldVisitor& v) override;
};

/// dy (N, OH, OW, O), w (KH, KW, C / groups, O) -> dx (N, H, W, C) with (H, W) = `size`.
class Conv2dGradInput final : public Convolution<Conv2dGradInput> {
 public:
  static constexpr OpTraits kTraits = convolution_traits("conv2d_grad_input");
  std::vector<int64_t> size{1, 1};
  std::vector<TensorType> infer(std::span<const TensorType> inputs) const override;
  std::vector<Value> expand(std::span<const Value> inputs) const override;
  std::vector<BatchFlow> batch_flow(const BatchFlowContext& c) const override;
  void fields(FieldVisitor& v) override;
};

/// x (N, H, W, C), dy (N, OH, OW, O) -> dw (KH, KW, C / groups, O) with (KH, KW) = `size`.
class Conv2dGradWeight final : public Convolution<Conv2dGradWeight> {
 public:
  static constexpr OpTraits kTraits = convolution_traits("conv2d_grad_weight");
  std::vector<int64_t> size{1, 1};
  std::vector<TensorType> infer(std::span<const TensorType> inputs) const override;
  std::vector<Value> expand(std::span<const Value> inputs) const override;
  std::vector<BatchFlow> batch_flow(const BatchFlowContext& c) const override;
  void fields(FieldVisitor& v) override;
};

Value conv2d(Value x, Value w, WindowFields window = {}, int64_t groups = 1);

}  // namespace ridge
