// Pooling over NHWC images and its gradients. The plain form of each reduces what is gathered of
// all windows.
#pragma once

#include <span>
#include <vector>

#include "ridge/graph/graph.h"
#include "ridge/graph/ops/conv.h"

namespace ridge {

/// A window of `kernel` (height, width) that slides as `window` says; dilation must be 1. Padding
/// is smaller than the kernel, so that every window holds a pixel.
struct PoolFields {
  std::vector<int64_t> kernel{1, 1};
  WindowFields window;

  void visit(FieldVisitor& v);
  /// (N, H, W, C) -> (N, OH, OW, C).
  TensorType output(const TensorType& x, std::string_view op) const;
};

constexpr OpTraits pool_traits(std::string_view name,
                               int inputs,
                               Gradient gradient,
                               Linearity linear,
                               DTypeSet dtypes = kFloats) {
  return {.name = name,
          .min_inputs = inputs,
          .max_inputs = inputs,
          .dtypes = dtypes,
          .op_class = OpClass::kReduction,
          .gradient = gradient,
          .linear = linear};
}

/// Largest element of each window; NaN when it holds one.
class MaxPool2d final : public OpOf<MaxPool2d> {
 public:
  static constexpr OpTraits kTraits = pool_traits(
      "max_pool2d", 1, Gradient::kRule, {}, kFloats | dtype_set(DType::kI8, DType::kU8));
  PoolFields pool;
  std::vector<TensorType> infer(std::span<const TensorType> inputs) const override;
  std::vector<Value> vjp(const VjpContext& c) const override;
  std::vector<Value> expand(std::span<const Value> inputs) const override;
  std::vector<BatchFlow> batch_flow(const BatchFlowContext& c) const override;
  void fields(FieldVisitor& v) override { pool.visit(v); }
};

/// x (N, H, W, C), dy (N, OH, OW, C) -> dx (N, H, W, C): each dy goes to the first largest element
/// (rows first) of its window.
class MaxPool2dGrad final : public OpOf<MaxPool2dGrad> {
 public:
  static constexpr OpTraits kTraits =
      pool_traits("max_pool2d_grad", 2, Gradient::kNone, {.joint = 2});
  PoolFields pool;
  std::vector<TensorType> infer(std::span<const TensorType> inputs) const override;
  std::vector<Value> expand(std::span<const Value> inputs) const override;
  std::vector<BatchFlow> batch_flow(const BatchFlowContext& c) const override;
  void fields(FieldVisitor& v) override { pool.visit(v); }
};

/// Mean of each window: over its pixels inside the image, or over kernel area when
/// `count_padding`.
class AvgPool2d final : public OpOf<AvgPool2d> {
 public:
  static constexpr OpTraits kTraits = pool_traits("avg_pool2d", 1, Gradient::kRule, {.joint = 1});
  PoolFields pool;
  bool count_padding = true;
  std::vector<TensorType> infer(std::span<const TensorType> inputs) const override;
  std::vector<Value> vjp(const VjpContext& c) const override;
  std::vector<Value> expand(std::span<const Value> inputs) const override;
  std::vector<BatchFlow> batch_flow(const BatchFlowContext& c) const override;
  void fields(FieldVisitor& v) override;
};

/// dy (N, OH, OW, C) -> dx (N, H, W, C) with (H, W) = `size`: the transpose of AvgPool2d.
class AvgPool2dGrad final : public OpOf<AvgPool2dGrad> {
 public:
  static constexpr OpTraits kTraits =
      pool_traits("avg_pool2d_grad", 1, Gradient::kRule, {.joint = 1});
  PoolFields pool;
  bool count_padding = true;
  std::vector<int64_t> size{1, 1};
  std::vector<TensorType> infer(std::span<const TensorType> inputs) const override;
  std::vector<Value> vjp(const VjpContext& c) const override;
  std::vector<Value> expand(std::span<const Value> inputs) const override;
  std::vector<BatchFlow> batch_flow(const BatchFlowContext& c) const override;
  void fields(FieldVisitor& v) override;
};

Value max_pool2d(Value x, PoolFields pool);
Value avg_pool2d(Value x, PoolFields pool, bool count_padding = true);
/// (N, H, W, C) -> (N, C): the mean over height and width.
Value global_avg_pool(Value x);

}  // namespace ridge
