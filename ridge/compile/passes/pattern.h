// The matcher of the passes that recognise an op in the plain ops that a model is written in.
//
//   x * 0.5 * (1 + erf(x / 1.4142135))
//                           product of   number 0.5, x and 1 + erf(...)
//   1 + erf(...)            sum of       number 1 and erf(...)
//   x / 1.4142135           product of   number 0.70710678 and x
//
// Exporters write one formula in many orders. Here a formula is a product or a sum, whatever the
// order and the spelling of its parts, so that a pass names each pattern once. A product or sum is
// taken apart only where nobody else reads it: what several ops read is a value of its own. With
// this no value that is read elsewhere besides is matched away, and x is found where it is itself a
// product.
//
// The passes change last bits, and are of the class that reorders sums: they run for programs that
// allow it, those of imported models. The ops that a result no longer needs are removed. Gradients
// are in the graph before any pass, and read what lies between: a graph that trains keeps its ops.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "ridge/compile/pass.h"
#include "ridge/graph/rewrite.h"

namespace ridge {

/// How often values are read, by ops that an output depends on and as outputs. The readers of a
/// broadcast count as those of its operand.
class Readers {
 public:
  explicit Readers(const Graph& graph);
  /// Counts all results of the node.
  int of(const Node& node) const { return counts_.at(static_cast<size_t>(node.id)); }
  bool is_read_once(Value value) const { return of(*value.node) == 1; }

 private:
  std::vector<int> counts_;
};

/// The operand where the value is a broadcast, else the value.
Value before_broadcast(Value value);
/// The number that each element is, broadcast or not.
std::optional<double> number_of(Value value);
/// True when a model that means `expected` may say `number` in that dtype: within four roundings.
/// Exporters round a constant once, and a product of numbers is of three at most in the patterns.
bool is_near(double number, double expected, DType dtype);
/// True when both are the same value, or equal ops of few levels made them: exporters write a
/// subtraction twice.
bool is_same_value(Value a, Value b);

/// base^exponent; the base stands before its broadcast.
struct Factor {
  Value base;
  double exponent = 1;
};

struct Product {
  double number = 1;
  std::vector<Factor> factors;  ///< Each base once.

  /// Takes out the first factor of that exponent for which `fits` holds.
  std::optional<Value> take(double exponent, const std::function<bool(Value)>& fits);
  /// True when the product is number * base^exponent.
  bool is_power(Value base, double exponent) const;
};

/// sign * value, before its broadcast.
struct Term {
  Value value;
  double sign = 1;
};

struct Sum {
  double number = 0;
  std::vector<Term> terms;
};

/// The value as a product, and as a sum. It is taken apart although others read it when `is_root`.
Product product_of(Value value, const Readers& readers, bool is_root = false);
Sum sum_of(Value value, const Readers& readers, bool is_root = false);

/// The value whose mean over the last axis, which stays, `value` is, once read; null for none.
Value operand_of_mean(Value value, const Readers& readers);
/// True when the value has one dimension, or only the last one is not 1, of `channels` elements.
bool is_per_channel(Value value, int64_t channels);
/// Such a value as (C).
Value as_channels(Value value);

/// Builds what stands for a result, of the values that `rewrite` has mapped.
using BuildMatch = std::function<Value(const Rewrite& rewrite)>;
/// The match that ends in a node with one result; null for none.
using FindMatch = BuildMatch (*)(const Node& node, const Readers& readers);

/// Replaces all matches and removes what they leave unread.
bool replace_matches(Graph& graph, PassContext& context, FindMatch find);

}  // namespace ridge
