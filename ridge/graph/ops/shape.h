// Ops that move elements and compute nothing: reshape, transpose, slice, pad, concat, broadcast.
#pragma once

#include <string_view>
#include <vector>

#include "ridge/graph/graph.h"

namespace ridge {

constexpr OpTraits move_traits(std::string_view name) {
  return {.name = name,
          .min_inputs = 1,
          .max_inputs = 1,
          .dtypes = kAnyDType,
          .gradient = Gradient::kRule,
          .linear = {.joint = 1}};
}

/// The same elements in row-major order under another shape.
class Reshape final : public OpOf<Reshape> {
 public:
  static constexpr OpTraits kTraits = move_traits("reshape");
  Shape shape;

  std::vector<TensorType> infer(std::span<const TensorType> inputs) const override;
  std::vector<Value> vjp(const VjpContext& c) const override;
  std::vector<BatchFlow> batch_flow(const BatchFlowContext& c) const override;
  void fields(FieldVisitor& v) override { v.visit("shape", shape); }
};

/// The same elements in a buffer of their own. A plan needs it where an updated input is still read
/// under its old value.
class Copy final : public OpOf<Copy> {
 public:
  static constexpr OpTraits kTraits = [] {
    OpTraits traits = move_traits("copy");
    traits.elementwise = true;
    return traits;
  }();

  std::vector<TensorType> infer(std::span<const TensorType> inputs) const override;
  std::vector<Value> vjp(const VjpContext& c) const override;
};

/// The first input, from the time on when the second is there: a node recomputed to save memory
/// must neither be merged with the first of its kind nor run as early. Plans give it no bytes of
/// its own.
class Barrier final : public OpOf<Barrier> {
 public:
  static constexpr OpTraits kTraits = [] {
    OpTraits traits = move_traits("barrier");
    traits.min_inputs = traits.max_inputs = 2;
    return traits;
  }();

  std::vector<TensorType> infer(std::span<const TensorType> inputs) const override;
  std::vector<Value> vjp(const VjpContext& c) const override;
  std::vector<BatchFlow> batch_flow(const BatchFlowContext& c) const override;
};

/// Axis i of the result is axis perm[i] of the input.
class Transpose final : public OpOf<Transpose> {
 public:
  static constexpr OpTraits kTraits = move_traits("transpose");
  std::vector<int64_t> perm;

  std::vector<TensorType> infer(std::span<const TensorType> inputs) const override;
  std::vector<Value> vjp(const VjpContext& c) const override;
  std::vector<BatchFlow> batch_flow(const BatchFlowContext& c) const override;
  void fields(FieldVisitor& v) override { v.visit("perm", perm); }
};

/// Repeats the input along axes of size 1 and new leading axes (NumPy's broadcast_to).
class Broadcast final : public OpOf<Broadcast> {
 public:
  static constexpr OpTraits kTraits = move_traits("broadcast");
  Shape shape;

  std::vector<TensorType> infer(std::span<const TensorType> inputs) const override;
  std::vector<Value> vjp(const VjpContext& c) const override;
  std::vector<BatchFlow> batch_flow(const BatchFlowContext& c) const override;
  void fields(FieldVisitor& v) override { v.visit("shape", shape); }
};

/// Elements start, start + step, ... below stop of each axis; 0 <= start < stop <= size, step >= 1.
class Slice final : public OpOf<Slice> {
 public:
  static constexpr OpTraits kTraits = move_traits("slice");
  std::vector<int64_t> start, stop, step;

  std::vector<TensorType> infer(std::span<const TensorType> inputs) const override;
  std::vector<Value> vjp(const VjpContext& c) const override;
  std::vector<BatchFlow> batch_flow(const BatchFlowContext& c) const override;
  void fields(FieldVisitor& v) override;
};

/// Adds `low` elements before, `high` after and `interior` between neighbours of each axis, all of
/// `value` (rounded to the dtype). With value 0 it is the transpose of Slice.
class Pad final : public OpOf<Pad> {
 public:
  static constexpr OpTraits kTraits = move_traits("pad");
  std::vector<int64_t> low, high, interior;
  double value = 0.0;

  Linearity linearity() const override { return value == 0.0 ? kTraits.linear : Linearity{}; }
  std::vector<TensorType> infer(std::span<const TensorType> inputs) const override;
  std::vector<Value> vjp(const VjpContext& c) const override;
  std::vector<BatchFlow> batch_flow(const BatchFlowContext& c) const override;
  void fields(FieldVisitor& v) override;
};

/// x (..., N) -> x before column `limit` of each row, and `value` from there on: what x has there
/// is not read. 1 <= limit <= N.
class MaskColumns final : public OpOf<MaskColumns> {
 public:
  static constexpr OpTraits kTraits = [] {
    OpTraits traits = move_traits("mask_columns");
    traits.dtypes = kFloats;
    return traits;
  }();
  int64_t limit = 1;
  double value = 0.0;

  Linearity linearity() const override { return value == 0.0 ? kTraits.linear : Linearity{}; }
  std::vector<TensorType> infer(std::span<const TensorType> inputs) const override;
  std::vector<Value> vjp(const VjpContext& c) const override;
  std::vector<Value> expand(std::span<const Value> inputs) const override;
  std::vector<BatchFlow> batch_flow(const BatchFlowContext& c) const override;
  bool may_overwrite(size_t, size_t) const override { return true; }
  void fields(FieldVisitor& v) override;
};

/// The inputs one after another along `axis`; their other dimensions agree.
class Concat final : public OpOf<Concat> {
 public:
  static constexpr OpTraits kTraits{.name = "concat",
                                    .min_inputs = 1,
                                    .max_inputs = 1 << 16,
                                    .dtypes = kAnyDType,
                                    .gradient = Gradient::kRule,
                                    .linear = {.joint = ~0u}};
  int64_t axis = 0;

  std::vector<TensorType> infer(std::span<const TensorType> inputs) const override;
  std::vector<Value> vjp(const VjpContext& c) const override;
  std::vector<BatchFlow> batch_flow(const BatchFlowContext& c) const override;
  void fields(FieldVisitor& v) override { v.visit("axis", axis); }
};

/// NumPy's common shape of two shapes; UserError opened by `who` when there is none.
Shape broadcast_shape(const Shape& a, const Shape& b, std::string_view who);

/// The node whose value reaches `node` through reshapes alone: itself where it is none.
const Node& behind_reshapes(const Node& node);

/// True for a transpose that swaps the last two axes and leaves all others, as transpose_last().
bool swaps_last_axes(const Node& node);

Value copy(Value x);
Value barrier(Value x, Value after);
// All other builders return x itself where the result would be equal to it.
/// One size may be -1: what is left.
Value reshape(Value x, Shape shape);
Value transpose(Value x, std::vector<int64_t> perm);
/// Swaps the last two axes.
Value transpose_last(Value x);
Value broadcast(Value x, Shape shape);
/// Along one axis, elements start to stop - 1 (negative: from the end) in steps.
Value slice(Value x, int64_t axis, int64_t start, int64_t stop, int64_t step = 1);
Value slice(Value x,
            std::vector<int64_t> start,
            std::vector<int64_t> stop,
            std::vector<int64_t> step);
Value pad(Value x, std::vector<int64_t> low, std::vector<int64_t> high, double value = 0.0);
Value pad(Value x,
          std::vector<int64_t> low,
          std::vector<int64_t> high,
          std::vector<int64_t> interior,
          double value);
Value mask_columns(Value x, int64_t limit, double value);
Value concat(std::vector<Value> xs, int64_t axis);

}  // namespace ridge
