// Activations.
#include "ridge/graph/ops/activation.h"

#include <memory>
#include <optional>

#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/import/onnx/op_table.h"
#include "ridge/import/onnx/ops/each_element.h"

namespace ridge::onnx {
namespace {

Value zero_of(Value x) { return constant_like(x, 0.0); }

// The smaller of 1 and x, but at least 0.
Value in_unit(Value x) { return minimum(maximum(x, zero_of(x)), constant_like(x, 1.0)); }

// log(1 + exp(x)), for any x.
Value softplus_of(Value x) { return maximum(x, zero_of(x)) + log(exp(neg(abs(x))) + 1.0); }

// Result 0 remembers what it was made of, for a QuantizeLinear behind it.
void remember_limits(NodeContext& n, std::optional<double> low, std::optional<double> high) {
  if (n.outputs() == 0) return;
  // Each holds the one before: a chain of any length would be let go one within another.
  constexpr int kMost = 4;
  int before = 0;
  for (const Datum* datum = n.datum(0).get(); datum->limited != nullptr;
       datum = datum->limited->of.get())
    if (++before == kMost) return;
  n.results()[0]->limited =
      std::make_shared<const Limited>(Limited{.of = n.datum(0), .low = low, .high = high});
}

void relu(NodeContext& n) {
  each_element(
      n, [](Value x) { return is_float(x.dtype()) ? ridge::relu(x) : maximum(x, zero_of(x)); });
  remember_limits(n, 0.0, std::nullopt);
}

void leaky_relu(NodeContext& n) {
  const double alpha = n.number("alpha", 0.01);
  each_element(n, [&](Value x) { return where(lt(x, zero_of(x)), x * alpha, x); });
}

void thresholded_relu(NodeContext& n) {
  const double alpha = n.number("alpha", 1.0);
  each_element(n, [&](Value x) { return where(gt(x, constant_like(x, alpha)), x, zero_of(x)); });
}

void prelu(NodeContext& n) {
  each_element(n, [](const std::vector<Value>& v) {
    check(v.size() == 2, "it has {} inputs", v.size());
    return where(lt(v[0], zero_of(v[0])), v[0] * v[1], v[0]);
  });
}

void elu_of(NodeContext& n, double alpha, double gamma) {
  each_element(n, [&](Value x) {
    const Value y = where(gt(x, zero_of(x)), x, (exp(x) - 1.0) * alpha);
    return gamma == 1.0 ? y : y * gamma;
  });
}

void elu(NodeContext& n) { elu_of(n, n.number("alpha", 1.0), 1.0); }

void selu(NodeContext& n) {
  elu_of(n,
         n.number("alpha", 1.67326319217681884765625),
         n.number("gamma", 1.05070102214813232421875));
}

void celu(NodeContext& n) {
  const double alpha = n.number("alpha", 1.0);
  each_element(n, [&](Value x) {
    return maximum(x, zero_of(x)) + minimum(zero_of(x), (exp(x / alpha) - 1.0) * alpha);
  });
}

void sigmoid(NodeContext& n) {
  each_element(n, [](Value x) { return ridge::sigmoid(x); });
}

void hard_sigmoid(NodeContext& n) {
  const double alpha = n.number("alpha", 0.2), beta = n.number("beta", 0.5);
  each_element(n, [&](Value x) { return in_unit(x * alpha + beta); });
}

void hard_swish(NodeContext& n) {
  each_element(n, [](Value x) { return x * in_unit(x * (1.0 / 6.0) + 0.5); });
}

void softplus(NodeContext& n) {
  each_element(n, [](Value x) { return softplus_of(x); });
}

void softsign(NodeContext& n) {
  each_element(n, [](Value x) { return x / (abs(x) + 1.0); });
}

void mish(NodeContext& n) {
  each_element(n, [](Value x) { return x * tanh(softplus_of(x)); });
}

void swish(NodeContext& n) {
  const double alpha = n.number("alpha", 1.0);
  each_element(n, [&](Value x) { return alpha == 1.0 ? silu(x) : x * ridge::sigmoid(x * alpha); });
}

void quick_gelu(NodeContext& n) {
  const double alpha = n.number("alpha", 1.702);
  each_element(n, [&](Value x) { return x * ridge::sigmoid(x * alpha); });
}

void gelu(NodeContext& n) {
  const std::string form = n.text("approximate", "none");
  check(form == "none" || form == "tanh", "its approximation '{}' is not known", form);
  each_element(n, [&](Value x) {
    return ridge::gelu(x, form == "tanh" ? GeluForm::kTanh : GeluForm::kErf);
  });
}

// The activation of the input, or of its sum with a bias.
template <GeluForm kForm>
void bias_gelu(NodeContext& n) {
  each_element(n, [](const std::vector<Value>& v) {
    return ridge::gelu(v.size() > 1 ? v[0] + v[1] : v[0], kForm);
  });
}

void shrink(NodeContext& n) {
  const double bias = n.number("bias", 0.0), lambda = n.number("lambd", 0.5);
  each_element(n, [&](Value x) {
    const Value below = lt(x, constant_like(x, -lambda));
    const Value above = gt(x, constant_like(x, lambda));
    const Value zero = zero_of(x);
    return where(below, x + bias, where(above, x - bias, zero));
  });
}

// Bounds are attributes up to opset 10, and inputs from there on.
void clip(NodeContext& n) {
  const auto bounded = [&](Value x) {
    Value y = x;
    const bool has_low = n.has_attribute("min") || n.has(1);
    const bool has_high = n.has_attribute("max") || n.has(2);
    if (has_low) y = maximum(y, broadcast(scalar_or(n, 1, x, n.number("min", 0.0)), x.shape()));
    if (has_high) y = minimum(y, broadcast(scalar_or(n, 2, x, n.number("max", 0.0)), x.shape()));
    return y;
  };
  each_element(n, std::function<Value(Value)>(bounded));
  if ((n.has(1) && n.known(1) == nullptr) || (n.has(2) && n.known(2) == nullptr)) return;
  const auto bound = [&](size_t input, std::string_view attribute) -> std::optional<double> {
    if (n.has(input)) return n.scalar(input, attribute);
    if (n.has_attribute(attribute)) return n.number(attribute, 0.0);
    return std::nullopt;
  };
  remember_limits(n, bound(1, "min"), bound(2, "max"));
}

constexpr OpRow kActivationOps[] = {
    {"BiasGelu", bias_gelu<GeluForm::kErf>, 1, 1, kMicrosoft},
    {"Celu", celu},
    {"Clip", clip},
    {"Elu", elu},
    {"FastGelu", bias_gelu<GeluForm::kTanh>, 1, 1, kMicrosoft},
    {"Gelu", gelu},
    {"Gelu", gelu, 1, 1, kMicrosoft},
    {"HardSigmoid", hard_sigmoid},
    {"HardSwish", hard_swish},
    {"LeakyRelu", leaky_relu},
    {"Mish", mish},
    {"PRelu", prelu},
    {"QuickGelu", quick_gelu, 1, 1, kMicrosoft},
    {"Relu", relu},
    {"Selu", selu},
    {"Shrink", shrink},
    {"Sigmoid", sigmoid},
    {"Softplus", softplus},
    {"Softsign", softsign},
    {"Swish", swish},
    {"ThresholdedRelu", thresholded_relu},
};

}  // namespace

std::span<const OpRow> activation_ops() { return kActivationOps; }

}  // namespace ridge::onnx
