#include "ridge/compile/passes/pattern.h"

#include <algorithm>
#include <cmath>

#include "ridge/base/unit_roundoff.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"

namespace ridge {

Readers::Readers(const Graph& graph) : counts_(graph.nodes().size()) {
  const std::vector<bool> live = live_nodes(graph);
  for (const Output& output : graph.outputs())
    ++counts_[static_cast<size_t>(output.value.node->id)];
  for (size_t id = counts_.size(); id-- > 0;) {
    const Node& node = *graph.nodes()[id];
    if (!live[id]) continue;
    const int readers = node.is<Broadcast>() ? counts_[id] : 1;
    for (const Value& input : node.inputs) counts_[static_cast<size_t>(input.node->id)] += readers;
  }
}

Value before_broadcast(Value value) {
  while (value.node->is<Broadcast>()) value = value.node->inputs[0];
  return value;
}

std::optional<double> number_of(Value value) { return splat_of(before_broadcast(value)); }

namespace {

bool is_same_value(Value a, Value b, int levels) {
  if (a == b) return true;
  if (levels == 0 || a.index != b.index || a.node->is<Input>() ||
      a.node->inputs.size() != b.node->inputs.size() || !equal(*a.node->op, *b.node->op))
    return false;
  for (size_t i = 0; i < a.node->inputs.size(); ++i)
    if (!is_same_value(a.node->inputs[i], b.node->inputs[i], levels - 1)) return false;
  return true;
}

void multiply(Product& product, Value value, double exponent) {
  const auto same = std::find_if(product.factors.begin(),
                                 product.factors.end(),
                                 [&](const Factor& factor) { return factor.base == value; });
  if (same == product.factors.end())
    product.factors.push_back({value, exponent});
  else
    same->exponent += exponent;
}

// `exponent` is 1 or -1.
void add_factors(
    Product& product, Value value, double exponent, const Readers& readers, bool is_root) {
  value = before_broadcast(value);
  if (const auto number = splat_of(value)) {
    product.number *= exponent > 0 ? *number : 1.0 / *number;
    return;
  }
  const Node& node = *value.node;
  const bool is_open = is_root || readers.is_read_once(value);
  const auto operand = [&](size_t i, double sign) {
    add_factors(product, node.inputs[i], sign * exponent, readers, false);
  };
  if (is_open && node.is<Mul>()) {
    operand(0, 1);
    operand(1, 1);
  } else if (is_open && node.is<Div>()) {
    operand(0, 1);
    operand(1, -1);
  } else if (is_open && node.is<Neg>()) {
    product.number = -product.number;
    operand(0, 1);
  } else if (is_open && (node.is<Sqrt>() || node.is<Rsqrt>())) {
    // The root of a product is not the product of roots where both are negative.
    const double root = node.is<Sqrt>() ? 0.5 : -0.5;
    multiply(product, before_broadcast(node.inputs[0]), root * exponent);
  } else {
    multiply(product, value, exponent);
  }
}

void add_terms(Sum& sum, Value value, double sign, const Readers& readers, bool is_root) {
  value = before_broadcast(value);
  if (const auto number = splat_of(value)) {
    sum.number += sign * *number;
    return;
  }
  const Node& node = *value.node;
  const bool is_open = is_root || readers.is_read_once(value);
  if (is_open && (node.is<Add>() || node.is<Sub>())) {
    add_terms(sum, node.inputs[0], sign, readers, false);
    add_terms(sum, node.inputs[1], node.is<Add>() ? sign : -sign, readers, false);
  } else if (is_open && node.is<Neg>()) {
    add_terms(sum, node.inputs[0], -sign, readers, false);
  } else {
    sum.terms.push_back({value, sign});
  }
}

template <typename Op>
Value operand_of_row_reduction(Value value) {
  const auto& op = value.node->op_as<Op>();
  const Value x = value.node->inputs[0];
  return op.keepdims && op.axes == std::vector<int64_t>{x.rank() - 1} ? x : Value{};
}

}  // namespace

bool is_near(double number, double expected, DType dtype) {
  return std::fabs(number - expected) <= 4 * unit_roundoff(dtype) * std::fabs(expected);
}

bool is_same_value(Value a, Value b) {
  constexpr int kLevels = 6;
  return is_same_value(a, b, kLevels);
}

std::optional<Value> Product::take(double exponent, const std::function<bool(Value)>& fits) {
  const auto found = std::find_if(factors.begin(), factors.end(), [&](const Factor& factor) {
    return factor.exponent == exponent && fits(factor.base);
  });
  if (found == factors.end()) return std::nullopt;
  const Value value = found->base;
  factors.erase(found);
  return value;
}

bool Product::is_power(Value base, double exponent) const {
  return factors.size() == 1 && factors[0].base == base && factors[0].exponent == exponent;
}

Product product_of(Value value, const Readers& readers, bool is_root) {
  Product product;
  add_factors(product, value, 1, readers, is_root);
  return product;
}

Sum sum_of(Value value, const Readers& readers, bool is_root) {
  Sum sum;
  add_terms(sum, value, 1, readers, is_root);
  return sum;
}

Value operand_of_mean(Value value, const Readers& readers) {
  value = before_broadcast(value);
  if (value.node->is<ReduceMean>()) return operand_of_row_reduction<ReduceMean>(value);
  const Product mean = product_of(value, readers, /*is_root=*/true);
  if (mean.factors.size() != 1 || mean.factors[0].exponent != 1) return {};
  const Value sum = mean.factors[0].base;
  if (!sum.node->is<ReduceSum>() || !readers.is_read_once(sum)) return {};
  const Value x = operand_of_row_reduction<ReduceSum>(sum);
  const bool is_mean = x && is_near(mean.number, 1.0 / static_cast<double>(x.dim(-1)), x.dtype());
  return is_mean ? x : Value{};
}

bool is_per_channel(Value value, int64_t channels) {
  return value.rank() >= 1 && value.dim(-1) == channels && value.type().elements() == channels;
}

Value as_channels(Value value) { return reshape(value, {value.dim(-1)}); }

bool replace_matches(Graph& graph, PassContext& context, FindMatch find) {
  const Readers readers(graph);
  Rewrite rewrite(graph);
  bool changed = false;
  for (const auto& node : graph.nodes()) {
    const BuildMatch build = node->outputs.size() == 1 ? find(*node, readers) : nullptr;
    if (!build) {
      rewrite.copy(*node);
      continue;
    }
    const SiteScope scope(rewrite.to(), node->site.name + "/matched", SiteScope::Path::kAbsolute);
    const size_t before = rewrite.to().nodes().size();
    const Value value = build(rewrite);
    // The node that takes the place of another takes its name too.
    if (static_cast<size_t>(value.node->id) >= before) value.node->site = node->site;
    rewrite.replace(*node, {value});
    changed = true;
  }
  if (!changed) return false;
  graph = rewrite.finish();
  remove_dead(graph, context);
  return true;
}

}  // namespace ridge
