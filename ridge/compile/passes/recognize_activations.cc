// Makes one op of a GELU or SiLU that is written out:
//
//   x * 0.5 * (1 + erf(x / sqrt(2)))                              ->   gelu(x)
//   x * 0.5 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))     ->   gelu(x, tanh)
//   x * sigmoid(x), x / (1 + exp(-x))                             ->   silu(x)
//
// The products may come in any order, a quotient may stand for a product with a number, and the
// polynomial may have x before it: x * (1 + 0.044715 * x^2). The gate of tf2onnx's erfc is
// 1 - erf(-x / sqrt(2)).
#include <cmath>
#include <numbers>

#include "ridge/compile/passes/pattern.h"
#include "ridge/graph/ops/activation.h"
#include "ridge/graph/ops/elementwise.h"

namespace ridge {
namespace {

constexpr double kCubic = 0.044715;

// True for kCubic * x^exponent.
bool is_cubic_part(Value value, Value x, double exponent, const Readers& readers) {
  const Product product = product_of(value, readers);
  return is_near(product.number, kCubic, x.dtype()) && product.is_power(x, exponent);
}

bool is_term(const Term& term, Value value) { return term.value == value && term.sign == 1; }

// True for x + kCubic * x^3, less the factor x when that stands before it.
bool is_polynomial(Value value, Value x, bool is_divided, const Readers& readers) {
  const Sum sum = sum_of(value, readers);
  if (is_divided)
    return sum.number == 1 && sum.terms.size() == 1 && sum.terms[0].sign == 1 &&
           is_cubic_part(sum.terms[0].value, x, 2, readers);
  if (sum.number != 0 || sum.terms.size() != 2) return false;
  for (const size_t i : {size_t{0}, size_t{1}})
    if (is_term(sum.terms[i], x) && sum.terms[1 - i].sign == 1 &&
        is_cubic_part(sum.terms[1 - i].value, x, 3, readers))
      return true;
  return false;
}

// True for sign * sqrt(2 / pi) * (x + kCubic * x^3).
bool is_argument_of_tanh(Value value, double sign, Value x, const Readers& readers) {
  Product product = product_of(value, readers);
  const double slope = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
  if (!is_near(sign * product.number, slope, x.dtype())) return false;
  const bool is_divided = product.take(1, [&](Value base) { return base == x; }).has_value();
  return product.factors.size() == 1 && product.factors[0].exponent == 1 &&
         is_polynomial(product.factors[0].base, x, is_divided, readers);
}

bool is_argument_of_erf(Value value, double sign, Value x, const Readers& readers) {
  const Product product = product_of(value, readers);
  return is_near(sign * product.number, 1.0 / std::numbers::sqrt2, x.dtype()) &&
         product.is_power(x, 1);
}

// The form of GELU whose gate 1 + f(x) the value is; both f are odd, so that the sign of a gate may
// stand in its argument.
std::optional<GeluForm> form_of_gate(Value gate, Value x, const Readers& readers) {
  const Sum sum = sum_of(gate, readers);
  if (sum.number != 1 || sum.terms.size() != 1) return std::nullopt;
  const auto [value, sign] = sum.terms[0];
  if (!readers.is_read_once(value)) return std::nullopt;
  const Node& node = *value.node;
  if (node.is<Erf>() && is_argument_of_erf(node.inputs[0], sign, x, readers)) return GeluForm::kErf;
  if (node.is<Tanh>() && is_argument_of_tanh(node.inputs[0], sign, x, readers))
    return GeluForm::kTanh;
  return std::nullopt;
}

// True for sigmoid(x), and with `exponent` -1 for 1 + exp(-x).
bool is_sigmoid(const Factor& gate, Value x, const Readers& readers) {
  const Node& node = *gate.base.node;
  if (gate.exponent == 1) return node.is<Sigmoid>() && readers.of(node) == 1 && node.inputs[0] == x;
  const Sum sum = sum_of(gate.base, readers);
  if (gate.exponent != -1 || sum.number != 1 || sum.terms.size() != 1) return false;
  const auto [value, sign] = sum.terms[0];
  if (sign != 1 || !value.node->is<Exp>() || !readers.is_read_once(value)) return false;
  const Product product = product_of(value.node->inputs[0], readers);
  return product.number == -1 && product.is_power(x, 1);
}

// The activation of x that number * x * gate is.
BuildMatch match_of(
    const Node& node, Value x, double number, const Factor& gate, const Readers& r) {
  if (x.type() != node.outputs[0]) return nullptr;
  if (number == 1 && is_sigmoid(gate, x, r))
    return [x](const Rewrite& rewrite) { return silu(rewrite.mapped(x)); };
  if (gate.exponent != 1 || !is_near(number, 0.5, x.dtype())) return nullptr;
  const auto form = form_of_gate(gate.base, x, r);
  if (!form) return nullptr;
  return [x, form](const Rewrite& rewrite) { return gelu(rewrite.mapped(x), *form); };
}

BuildMatch find_activation(const Node& node, const Readers& readers) {
  if ((!node.is<Mul>() && !node.is<Div>()) || !is_float(node.outputs[0].dtype)) return nullptr;
  const Product product = product_of({const_cast<Node*>(&node), 0}, readers, /*is_root=*/true);
  if (product.factors.size() != 2) return nullptr;
  for (const size_t i : {size_t{0}, size_t{1}}) {
    const Factor &x = product.factors[i], &gate = product.factors[1 - i];
    if (x.exponent != 1) continue;
    if (BuildMatch match = match_of(node, x.base, product.number, gate, readers)) return match;
  }
  return nullptr;
}

}  // namespace

bool recognize_activations(Graph& graph, PassContext& context) {
  return replace_matches(graph, context, find_activation);
}

}  // namespace ridge
