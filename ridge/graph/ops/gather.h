// Looking up by index and its transpose, and one-hot vectors.
#pragma once

#include <vector>

#include "ridge/graph/graph.h"

namespace ridge {

constexpr OpTraits gather_traits(std::string_view name, OpClass op_class, int most_inputs = 2) {
  return {.name = name,
          .min_inputs = 2,
          .max_inputs = most_inputs,
          .dtypes = kNumbers,
          .op_class = op_class,
          .gradient = Gradient::kRule,
          .linear = {.joint = most_inputs == 3 ? 0b101u : 1u}};
}

/// x (A..., N, B...), indices (I...) i64 or i32 -> (A..., I..., B...), where N is axis `axis`
/// (NumPy's take). An index outside [0, N) is a UserError at run time.
class Gather final : public OpOf<Gather> {
 public:
  static constexpr OpTraits kTraits = gather_traits("gather", OpClass::kMove);
  int64_t axis = 0;

  std::vector<TensorType> infer(std::span<const TensorType> inputs) const override;
  std::vector<Value> vjp(const VjpContext& c) const override;
  std::vector<BatchFlow> batch_flow(const BatchFlowContext& c) const override;
  void fields(FieldVisitor& v) override { v.visit("axis", axis); }
};

/// updates (A..., I..., B...), indices (I...) -> (A..., size, B...): zeros, or the third input, to
/// which every update is added at its index, in the order of the indices. The transpose of Gather;
/// an index outside [0, size) is a UserError at run time.
class ScatterAdd final : public OpOf<ScatterAdd> {
 public:
  static constexpr OpTraits kTraits = gather_traits("scatter_add", OpClass::kReduction, 3);
  int64_t axis = 0;
  int64_t size = 1;

  std::vector<TensorType> infer(std::span<const TensorType> inputs) const override;
  std::vector<Value> vjp(const VjpContext& c) const override;
  Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<BatchFlow> batch_flow(const BatchFlowContext& c) const override;
  bool may_overwrite(size_t, size_t input) const override { return input == 2; }
  void fields(FieldVisitor& v) override {
    v.visit("axis", axis);
    v.visit("size", size);
  }
};

/// indices (I...) -> (I..., depth) of dtype `to`: 1 at the index, 0 elsewhere; all 0 for an index
/// outside [0, depth).
class OneHot final : public OpOf<OneHot> {
 public:
  static constexpr OpTraits kTraits{.name = "one_hot",
                                    .min_inputs = 1,
                                    .max_inputs = 1,
                                    .dtypes = kIndices,
                                    .gradient = Gradient::kZero};
  int64_t depth = 1;
  DType to = DType::kF32;

  std::vector<TensorType> infer(std::span<const TensorType> inputs) const override;
  std::vector<BatchFlow> batch_flow(const BatchFlowContext& c) const override;
  void fields(FieldVisitor& v) override {
    v.visit("depth", depth);
    v.visit("to", to);
  }
};

/// x (..., C), indices (...) i64 or i32 -> (...): of each row the element at its index. An index
/// outside [0, C), or with a limit [0, limit), is a UserError at run time. 0 <= limit <= C.
class Pick final : public OpOf<Pick> {
 public:
  static constexpr OpTraits kTraits = gather_traits("pick", OpClass::kMove);
  int64_t limit = 0;  ///< 0: all columns count.

  /// How many columns of rows of `columns` an index may name.
  int64_t columns_of(int64_t columns) const { return limit == 0 ? columns : limit; }
  std::vector<TensorType> infer(std::span<const TensorType> inputs) const override;
  std::vector<Value> vjp(const VjpContext& c) const override;
  std::vector<BatchFlow> batch_flow(const BatchFlowContext& c) const override;
  void fields(FieldVisitor& v) override { v.visit("limit", limit); }
};

Value gather(Value x, Value indices, int64_t axis = 0);
/// Picks from each row of x, over its last axis, the element at the row's index.
Value pick(Value x, Value indices);
/// Rows of `table` (V, D) by ids (I...) -> (I..., D).
Value embedding(Value table, Value ids);
Value scatter_add(Value updates, Value indices, int64_t axis, int64_t size);
/// `base` with the updates added along `axis`.
Value scatter_add_to(Value base, Value updates, Value indices, int64_t axis);
Value one_hot(Value indices, int64_t depth, DType to = DType::kF32);

}  // namespace ridge
