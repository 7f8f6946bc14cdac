// Builds small graphs with random inputs for tests.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "ridge/base/tensor.h"
#include "ridge/graph/graph.h"
#include "ridge/run/evaluate.h"

namespace ridge::test {

/// Seeded random numbers with the same values on every machine.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  /// In [low, high).
  double uniform(double low, double high);
  /// In [low, high], both ends included.
  int64_t integer(int64_t low, int64_t high);
  bool chance(double p) { return uniform(0.0, 1.0) < p; }

 private:
  std::mt19937_64 engine_;
};

/// A graph under construction and tensors for its inputs. dtype() is the dtype under test: samples
/// build their main operands of it.
class CaseBuilder {
 public:
  CaseBuilder(DType dtype, uint64_t seed) : dtype_(dtype), random_(seed), graph_("case") {}

  DType dtype() const { return dtype_; }
  Graph& graph() { return graph_; }
  const NamedTensors& tensors() const { return tensors_; }
  Random& random() { return random_; }

  /// An input of dtype() with values in [low, high): whole numbers for integers (negative ones
  /// only where the dtype has them), either value for bool.
  Value input(Shape shape, double low = -2.0, double high = 2.0);
  Value input(DType dtype, Shape shape, double low, double high);
  /// Values that differ by at least 0.05 and keep 0.02 away from zero, in random order: maxima,
  /// kinks and ties stay where they are when the values are nudged.
  Value separated(Shape shape);
  /// Whole numbers of `dtype` in [low, high].
  Value indices(DType dtype, Shape shape, int64_t low, int64_t high);
  /// An input with exactly these elements.
  Value given(TensorType type, const std::vector<double>& values);

  /// Ends the graph with these outputs, named "y0", "y1", ...
  void finish(const std::vector<Value>& outputs);

 private:
  Value add_input(TensorType type);
  Tensor& tensor_of(Value value);

  DType dtype_;
  Random random_;
  Graph graph_;
  NamedTensors tensors_;
};

}  // namespace ridge::test
