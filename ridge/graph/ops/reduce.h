// Reductions over any axes, and argmax.
#pragma once

#include <vector>

#include "ridge/graph/graph.h"

namespace ridge {

/// Base of the reductions: `axes` ascending and not empty; a reduced axis stays with size 1 when
/// `keepdims`, else goes.
template <typename Self>
class Reduction : public OpOf<Self> {
 public:
  std::vector<int64_t> axes;
  bool keepdims = false;

  std::vector<TensorType> infer(std::span<const TensorType> inputs) const override;
  std::vector<Value> vjp(const VjpContext& c) const override;
  Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<BatchFlow> batch_flow(const BatchFlowContext& c) const override;
  void fields(FieldVisitor& v) override {
    v.visit("axes", axes);
    v.visit("keepdims", keepdims);
  }
};

constexpr OpTraits reduction_traits(std::string_view name, DTypeSet dtypes, Linearity linear) {
  return {.name = name,
          .min_inputs = 1,
          .max_inputs = 1,
          .dtypes = dtypes,
          .op_class = OpClass::kReduction,
          .gradient = Gradient::kRule,
          .linear = linear};
}

/// Integers wrap modulo 2^bits.
class ReduceSum final : public Reduction<ReduceSum> {
 public:
  static constexpr OpTraits kTraits = reduction_traits("reduce_sum", kNumbers, {.joint = 1});
};

/// The sums of bytes, i8 or u8, as i32, modulo 2^32: the same bits in any order. No gradient.
class ReduceSumI8 final : public Reduction<ReduceSumI8> {
 public:
  static constexpr OpTraits kTraits{.name = "reduce_sum_i8",
                                    .min_inputs = 1,
                                    .max_inputs = 1,
                                    .dtypes = dtype_set(DType::kI8, DType::kU8),
                                    .op_class = OpClass::kReduction,
                                    .gradient = Gradient::kNone,
                                    .linear = {.joint = 1}};
  std::vector<TensorType> infer(std::span<const TensorType> inputs) const override;
  std::vector<Value> expand(std::span<const Value> inputs) const override;
};

class ReduceMean final : public Reduction<ReduceMean> {
 public:
  static constexpr OpTraits kTraits = reduction_traits("reduce_mean", kFloats, {.joint = 1});
};

/// NaN when any element is NaN. Equal largest elements share the gradient evenly.
class ReduceMax final : public Reduction<ReduceMax> {
 public:
  static constexpr OpTraits kTraits = reduction_traits("reduce_max", kNumbers, {});
};

/// Index (i64) of the largest element along `axis`, which goes; the first of equals; a NaN counts
/// as larger than any number. With a limit only the first `limit` along the axis are compared.
class ArgMax final : public OpOf<ArgMax> {
 public:
  static constexpr OpTraits kTraits{.name = "argmax",
                                    .min_inputs = 1,
                                    .max_inputs = 1,
                                    .dtypes = kNumbers,
                                    .gradient = Gradient::kZero};
  int64_t axis = 0;
  int64_t limit = 0;  ///< 0: all.

  /// Elements along an axis of `size` that are compared.
  int64_t looked_at(int64_t size) const { return limit == 0 ? size : limit; }

  std::vector<TensorType> infer(std::span<const TensorType> inputs) const override;
  std::vector<BatchFlow> batch_flow(const BatchFlowContext& c) const override;
  void fields(FieldVisitor& v) override {
    v.visit("axis", axis);
    v.visit("limit", limit);
  }
};

// Builders: axes may be negative, in any order; without axes, all of them.
Value reduce_sum(Value x, std::vector<int64_t> axes = {}, bool keepdims = false);
Value reduce_sum_i8(Value x, std::vector<int64_t> axes = {}, bool keepdims = false);
Value reduce_mean(Value x, std::vector<int64_t> axes = {}, bool keepdims = false);
Value reduce_max(Value x, std::vector<int64_t> axes = {}, bool keepdims = false);
Value argmax(Value x, int64_t axis);

}  // namespace ridge
