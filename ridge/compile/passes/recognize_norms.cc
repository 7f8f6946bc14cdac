// Makes one op of a norm of rows that is written out:
//
//   c = x - mean(x)                                  ->   layer_norm(x, g, b)
//   c / sqrt(mean(c * c) + eps) * g + b
//
//   x * rsqrt(mean(x * x) + eps) * g                 ->   rms_norm(x, g)
//
// The products may come in any order, and a mean may be a sum times 1 / C. Without scale or shift
// they are 1 and 0; the shift of an RMS norm, a scale behind a cast and all else stay where they
// are. Exporters of TensorFlow write the layer norm as
//
//   m = rsqrt(mean(c * c) + eps) * g
//   x * m + (b - mean(x) * m)
#include "ridge/compile/passes/pattern.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/norm.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/source.h"

namespace ridge {
namespace {

// A number a channel: value * number, or the number where the value is null.
struct Weight {
  Value value = {};
  double number = 1;
};

struct Norm {
  Value x;
  double eps = 0;
  Weight gamma = {};
  Weight beta = {{}, 0};
  bool is_centered = false;
};

// mean(of^2) + eps, which reads `of` twice.
struct MeanSquare {
  Value of;
  double eps = 0;
};

std::optional<MeanSquare> mean_square_of(Value value, const Readers& readers) {
  const Sum sum = sum_of(value, readers);
  // The op refuses any other eps.
  if (sum.terms.size() != 1 || sum.terms[0].sign != 1 || sum.number < 0 || sum.number >= 1)
    return std::nullopt;
  const Value mean = sum.terms[0].value;
  if (!readers.is_read_once(mean)) return std::nullopt;
  const Value square = operand_of_mean(mean, readers);
  if (!square || !readers.is_read_once(square)) return std::nullopt;
  const Product product = product_of(square, readers);
  if (product.number != 1 || product.factors.size() != 1 || product.factors[0].exponent != 2 ||
      product.factors[0].base.shape() != square.shape())
    return std::nullopt;
  return MeanSquare{product.factors[0].base, sum.number};
}

// x, where the value is x less the mean of its row.
Value operand_of_centered(Value value, const Readers& readers) {
  if (!value.node->is<Sub>()) return {};
  const Value x = value.node->inputs[0];
  return operand_of_mean(value.node->inputs[1], readers) == x ? x : Value{};
}

// Centres the norm where its operand is x less its mean and nobody else reads that. Otherwise it is
// an RMS norm of the difference.
void center(Norm& norm, Value again, const Readers& readers) {
  const Value centered = norm.x;
  const Value x = operand_of_centered(centered, readers);
  const int reads = readers.of(*centered.node) + (again == centered ? 0 : readers.of(*again.node));
  if (!x || reads != 3) return;
  norm.x = x;
  norm.is_centered = true;
}

// Takes 1 / sqrt(mean(c^2) + eps) out of the product.
std::optional<MeanSquare> take_root(Product& product, const Readers& readers) {
  std::optional<MeanSquare> square;
  product.take(-0.5, [&](Value base) {
    square = mean_square_of(base, readers);
    return square.has_value();
  });
  return square;
}

// The rest of a product as a weight of so many channels.
std::optional<Weight> weight_of(const Product& rest, int64_t channels) {
  if (rest.factors.empty()) return Weight{{}, rest.number};
  const Factor& factor = rest.factors[0];
  if (rest.factors.size() > 1 || factor.exponent != 1 || !is_per_channel(factor.base, channels))
    return std::nullopt;
  return Weight{factor.base, rest.number};
}

// c / sqrt(mean(c^2) + eps) * gamma
std::optional<Norm> norm_of_product(Value value, const Readers& readers) {
  Product product = product_of(value, readers, /*is_root=*/true);
  const auto square = take_root(product, readers);
  if (!square) return std::nullopt;
  const auto again = product.take(1, [&](Value base) { return is_same_value(base, square->of); });
  if (!again) return std::nullopt;
  const auto gamma = weight_of(product, square->of.dim(-1));
  if (!gamma) return std::nullopt;
  Norm norm{.x = square->of, .eps = square->eps, .gamma = *gamma};
  center(norm, *again, readers);
  return norm;
}

// The layer norm that a sum of two terms is, one of them its shift.
std::optional<Norm> norm_of_sum(const Node& node, const Readers& readers) {
  const Sum sum = sum_of({const_cast<Node*>(&node), 0}, readers, /*is_root=*/true);
  for (const Term& term : sum.terms) {
    if (term.sign != 1 || !readers.is_read_once(term.value) || sum.terms.size() > 2) continue;
    auto norm = norm_of_product(term.value, readers);
    if (!norm || !norm->is_centered) continue;
    norm->beta = {{}, sum.number};
    if (sum.terms.size() == 1) return norm;
    const Term& shift = sum.terms[&term == sum.terms.data() ? 1 : 0];
    if (sum.number != 0 || !is_per_channel(shift.value, norm->x.dim(-1))) continue;
    norm->beta = {shift.value, shift.sign};
    return norm;
  }
  return std::nullopt;
}

// ---- x * m + (beta - mean * m) ----

// The other factor of a product of two, one of which is `one`.
Value other_factor(Value value, Value one, const Readers& readers) {
  Product product = product_of(value, readers);
  if (product.number != 1 || product.factors.size() != 2) return {};
  if (!product.take(1, [&](Value base) { return base == one; })) return {};
  return product.factors[0].exponent == 1 ? product.factors[0].base : Value{};
}

// rsqrt(mean((x - mean(x))^2) + eps) * gamma as a norm without its shift.
std::optional<Norm> norm_of_factor(Value factor, Value x, const Readers& readers) {
  Product product = product_of(factor, readers, /*is_root=*/true);
  const auto square = take_root(product, readers);
  if (!square || operand_of_centered(square->of, readers) != x || readers.of(*square->of.node) != 2)
    return std::nullopt;
  const auto gamma = weight_of(product, x.dim(-1));
  if (!gamma) return std::nullopt;
  return Norm{.x = x, .eps = square->eps, .gamma = *gamma, .is_centered = true};
}

// The norm without its shift that x * m - mean * m is, by these two terms.
std::optional<Norm> norm_of_terms(Value scaled, Value scaled_mean, const Readers& readers) {
  for (const Factor& x : product_of(scaled, readers).factors) {
    const Value factor = other_factor(scaled, x.base, readers);
    if (!factor || readers.of(*factor.node) != 2) continue;
    const Value mean = other_factor(scaled_mean, factor, readers);
    if (!mean || operand_of_mean(mean, readers) != x.base) continue;
    if (auto norm = norm_of_factor(factor, x.base, readers)) return norm;
  }
  return std::nullopt;
}

std::optional<Norm> norm_of_folded(const Node& node, const Readers& readers) {
  const Sum sum = sum_of({const_cast<Node*>(&node), 0}, readers, /*is_root=*/true);
  const size_t count = sum.terms.size();
  if (count < 2 || count > 3 || (count == 3 && sum.number != 0)) return std::nullopt;
  for (size_t scaled = 0; scaled < count; ++scaled)
    for (size_t mean = 0; mean < count; ++mean) {
      if (scaled == mean || sum.terms[scaled].sign != 1 || sum.terms[mean].sign != -1) continue;
      auto norm = norm_of_terms(sum.terms[scaled].value, sum.terms[mean].value, readers);
      if (!norm) continue;
      norm->beta = {{}, sum.number};
      if (count == 2) return norm;
      const Term& shift = sum.terms[3 - scaled - mean];
      if (!is_per_channel(shift.value, norm->x.dim(-1))) continue;
      norm->beta = {shift.value, shift.sign};
      return norm;
    }
  return std::nullopt;
}

Value build(const Norm& norm, const Rewrite& rewrite) {
  const Value x = rewrite.mapped(norm.x);
  const TensorType channels{x.dtype(), {x.dim(-1)}};
  const auto built = [&](const Weight& weight) {
    if (!weight.value) return constant(x.graph(), channels, weight.number);
    const Value value = as_channels(rewrite.mapped(weight.value));
    return weight.number == 1 ? value : value * weight.number;
  };
  const Value gamma = built(norm.gamma);
  return norm.is_centered ? layer_norm(x, gamma, built(norm.beta), norm.eps)
                          : rms_norm(x, gamma, norm.eps);
}

BuildMatch find_norm(const Node& node, const Readers& readers) {
  const TensorType& type = node.outputs[0];
  if (!is_float(type.dtype) || type.rank() == 0) return nullptr;
  std::optional<Norm> norm;
  if (node.is<Mul>() || node.is<Div>()) {
    norm = norm_of_product({const_cast<Node*>(&node), 0}, readers);
  } else if (node.is<Add>() || node.is<Sub>()) {
    norm = norm_of_sum(node, readers);
    if (!norm) norm = norm_of_folded(node, readers);
  }
  if (!norm || norm->x.type() != type) return nullptr;
  return [norm = *norm](const Rewrite& rewrite) { return build(norm, rewrite); };
}

}  // namespace

bool recognize_norms(Graph& graph, PassContext& context) {
  return replace_matches(graph, context, find_norm);
}

}  // namespace ridge
