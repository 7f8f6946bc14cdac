// Ops without inputs: graph inputs, constants, index ramps.
#pragma once

#include <string>
#include <vector>

#include "ridge/graph/graph.h"

namespace ridge {

/// A named input of the graph. `batch` is the axis along which it carries samples, or -1.
class Input final : public OpOf<Input> {
 public:
  static constexpr OpTraits kTraits{
      .name = "input", .dtypes = kAnyDType, .gradient = Gradient::kZero};

  std::string input_name;
  DType dtype = DType::kF32;
  Shape shape;
  int64_t batch = -1;

  std::vector<TensorType> infer(std::span<const TensorType>) const override;
  std::vector<BatchFlow> batch_flow(const BatchFlowContext&) const override;
  void fields(FieldVisitor& v) override;
};

/// A tensor written into the graph: one number for all elements, or one each in row-major order.
/// Float dtypes keep them in `values` (already rounded to the dtype), all others in `ints`.
class Constant final : public OpOf<Constant> {
 public:
  static constexpr OpTraits kTraits{
      .name = "constant", .dtypes = kAnyDType, .gradient = Gradient::kZero};

  DType dtype = DType::kF32;
  Shape shape;
  std::vector<double> values;
  std::vector<int64_t> ints;

  /// True when every element is the same by construction.
  bool is_splat() const { return values.size() + ints.size() == 1; }
  std::vector<TensorType> infer(std::span<const TensorType>) const override;
  std::vector<BatchFlow> batch_flow(const BatchFlowContext&) const override;
  void fields(FieldVisitor& v) override;
};

/// Element i of `axis` is i, the same for all other axes. The dtype must hold size - 1 exactly.
class Iota final : public OpOf<Iota> {
 public:
  static constexpr OpTraits kTraits{
      .name = "iota", .dtypes = kNumbers, .gradient = Gradient::kZero};

  DType dtype = DType::kI64;
  Shape shape;
  int64_t axis = 0;

  std::vector<TensorType> infer(std::span<const TensorType>) const override;
  std::vector<BatchFlow> batch_flow(const BatchFlowContext&) const override;
  void fields(FieldVisitor& v) override;
};

/// Adds an input whose site is its name; UserError when the name is taken.
Value input(Graph& graph, std::string name, TensorType type, int64_t batch = -1);

/// Every element is `value`, rounded to the dtype.
Value constant(Graph& graph, TensorType type, double value);
/// The elements in row-major order; integers and bools must be whole numbers.
Value constant(Graph& graph, TensorType type, const std::vector<double>& values);
/// Every element is `value`, of the type of `like`.
Value constant_like(Value like, double value);

Value iota(Graph& graph, TensorType type, int64_t axis);

}  // namespace ridge
