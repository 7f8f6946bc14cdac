#include "ridge/run/compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "ridge/graph/ops/fused_matmul.h"
#include "ridge/graph/ops/source.h"
#include "ridge/graph/ops/tf32.h"
#include "ridge/graph/text.h"

namespace ridge {

double tolerance(DType dtype, OpClass op_class) {
  if (!is_float(dtype)) return 0.0;
  if (op_class == OpClass::kMove || op_class == OpClass::kArithmetic) return 0.0;
  // In the order transcendental, reduction, contraction. 16-bit results are rounded once from an
  // f32 that is itself a little off: one step of the dtype (2^-10, 2^-7).
  constexpr double kF64[] = {1e-14, 1e-13, 1e-13};
  constexpr double kF32[] = {1e-6, 4e-6, 4e-6};
  constexpr double kF16[] = {1e-3, 1e-3, 1e-3};
  constexpr double kBF16[] = {8e-3, 8e-3, 8e-3};
  const auto row = static_cast<size_t>(op_class) - static_cast<size_t>(OpClass::kTranscendental);
  switch (dtype) {
    case DType::kF64:
      return kF64[row];
    case DType::kF32:
      return kF32[row];
    case DType::kF16:
      return kF16[row];
    default:
      return kBF16[row];
  }
}

double tolerance(const Node& node, DType dtype) {
  // Tensor cores cut what they multiply off after 11 bits: 2^-10 an operand.
  constexpr double kOfTf32 = 2e-3;
  if (is_in_tf32(*node.op)) return kOfTf32;
  const double own = tolerance(dtype, node.op->traits().op_class);
  if (!node.is<FusedMatMul>() || own == 0.0) return own;
  // A kernel may leave out that its loop reads a product of 16 bits.
  const DType product = product_type(node.op_as<FusedMatMul>(), node.input_types()).dtype;
  return std::max(own, tolerance(product, OpClass::kContraction));
}

namespace {

// The largest error, and a line that names its element.
struct Worst {
  double error = 0;
  std::string text;
};

Worst worst_error(const Tensor& got, const Tensor& want, double relative, const Tensor* magnitude);

}  // namespace

std::string difference(const Tensor& got,
                       const Tensor& want,
                       double relative,
                       const Tensor* magnitude) {
  if (got.type() != want.type())
    return fmt::format("type {} instead of {}", to_string(got.type()), to_string(want.type()));
  if (!is_float(want.type().dtype)) return got.same_bits(want) ? "" : "elements differ";
  return worst_error(got, want, relative, magnitude).text;
}

namespace {

Worst worst_error(const Tensor& got, const Tensor& want, double relative, const Tensor* magnitude) {
  double mean = 0;
  for (int64_t i = 0; i < want.elements(); ++i)
    if (std::isfinite(want.at(i))) mean += std::fabs(want.at(i));
  mean /= static_cast<double>(want.elements());
  // Below its smallest normal number the steps of f16 are as wide as there.
  const double least = want.type().dtype == DType::kF16 ? 0x1p-14 : 0.0;
  double worst = 0;
  std::string text;
  for (int64_t i = 0; i < want.elements(); ++i) {
    const double a = got.at(i), b = want.at(i);
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    const double terms = magnitude == nullptr ? 0.0 : magnitude->at(i);
    const double error = std::fabs(a - b) / std::max({std::fabs(b), mean, terms, least});
    // Written so that a NaN error counts.
    if (!(error <= relative) && !(error <= worst)) {
      worst = std::isnan(error) ? INFINITY : error;
      text =
          fmt::format("element {} of {}: {:.17g} instead of {:.17g}, error {:.3g}, allowed {:.3g}",
                      i,
                      to_string(want.type()),
                      a,
                      b,
                      error,
                      relative);
    }
  }
  return {worst, text};
}

bool same_bits_but_nan(const Tensor& a, const Tensor& b) {
  if (a.same_bits(b)) return true;
  if (a.type() != b.type() || !is_float(a.type().dtype)) return false;
  const size_t size = size_of(a.type().dtype);
  for (int64_t i = 0; i < a.elements(); ++i) {
    const auto offset = static_cast<size_t>(i) * size;
    const auto *x = static_cast<const char*>(a.data()) + offset,
               *y = static_cast<const char*>(b.data()) + offset;
    if (std::memcmp(x, y, size) != 0 && !(std::isnan(a.at(i)) && std::isnan(b.at(i)))) return false;
  }
  return true;
}

}  // namespace

std::string bit_difference(const NamedTensors& a, const NamedTensors& b) {
  if (a.size() != b.size()) return "another number of tensors";
  for (const auto& [name, tensor] : a) {
    const auto other = b.find(name);
    if (other == b.end()) return fmt::format("'{}' is missing", name);
    if (!same_bits_but_nan(tensor, other->second))
      return fmt::format("'{}' {} differs", name, to_string(tensor.type()));
  }
  return {};
}

namespace {

// For an op that is linear in its float operands: its results on their magnitudes, which are the
// sums of the magnitudes of its terms. Nothing for other ops.
NamedTensors term_magnitudes(const Graph& single,
                             const Op& op,
                             NamedTensors operands,
                             Backend& reference) {
  if (!sums_terms(op)) return {};
  for (auto& [name, tensor] : operands)
    if (is_float(tensor.type().dtype))
      for (int64_t i = 0; i < tensor.elements(); ++i) tensor.set(i, std::fabs(tensor.at(i)));
  return evaluate(single, reference, operands);
}

// The change of each result relative to a small relative change of every float operand, the largest
// of some tries. It measures results that cancel: no kernel knows more digits of them than the
// operands have. `want` is what `reference` gives for `operands`.
NamedTensors sensitivities(const Graph& lone,
                           const NamedTensors& operands,
                           const NamedTensors& want,
                           Backend& reference) {
  constexpr int kTries = 4;
  const bool has_16_bits = std::ranges::any_of(operands, [](const auto& operand) {
    const DType dtype = operand.second.type().dtype;
    return is_float(dtype) && size_of(dtype) == 2;
  });
  const double part = has_16_bits ? 0x1p-5 : 1e-6;
  NamedTensors most;
  std::mt19937 random;
  for (int i = 0; i < kTries; ++i) {
    NamedTensors moved = operands;
    for (auto& [name, tensor] : moved)
      if (is_float(tensor.type().dtype))
        for (int64_t at = 0; at < tensor.elements(); ++at)
          tensor.set(at, tensor.at(at) * (random() % 2 == 0 ? 1 + part : 1 - part));
    for (const auto& [name, tensor] : evaluate(lone, reference, moved)) {
      const TensorType type{DType::kF64, tensor.type().shape};
      Tensor& movement = most.try_emplace(name, Tensor(type)).first->second;
      for (int64_t at = 0; at < tensor.elements(); ++at) {
        const double now = std::fabs(tensor.at(at) - want.at(name).at(at)) / part;
        if (std::isfinite(now)) movement.set(at, std::max(movement.at(at), now));
      }
    }
  }
  return most;
}

const Node& node_of(const Graph& lone) { return *lone.outputs().at(0).value.node; }

}  // namespace

double plain_error(const Graph& lone,
                   const NamedTensors& operands,
                   const NamedTensors& want,
                   Backend& backend) {
  Graph plain("plain");
  std::vector<Value> values;
  const Node& node = node_of(lone);
  for (const Value& value : node.inputs)
    values.push_back(input(plain, fmt::format("{}", values.size()), value.type()));
  const std::vector<Value> results = node.op->expand(values);
  if (results.empty()) return 0;
  for (size_t i = 0; i < results.size(); ++i) plain.add_output(fmt::format("{}", i), results[i]);
  double worst = 0;
  for (const auto& [index, tensor] : evaluate(plain, backend, operands))
    if (is_float(tensor.type().dtype))
      worst = std::max(worst, worst_error(tensor, want.at(index), 0, nullptr).error);
  return worst;
}

bool sums_terms(const Op& op) {
  const Linearity linear = op.linearity();
  const OpClass op_class = op.traits().op_class;
  const bool sums = op_class == OpClass::kReduction || op_class == OpClass::kContraction;
  return sums && (linear.each | linear.joint) != 0;
}

Graph lone_node(const Node& node) {
  Graph lone("lone");
  std::vector<Value> operands;
  for (const Value& value : node.inputs)
    operands.push_back(input(lone, fmt::format("{}", operands.size()), value.type()));
  Node& copy = lone.add(node.op, operands, node.site);
  for (size_t i = 0; i < copy.outputs.size(); ++i)
    lone.add_output(fmt::format("{}", i), {&copy, static_cast<int>(i)});
  return lone;
}

std::vector<std::string> choice_differences(const Graph& lone,
                                            const NamedTensors& operands,
                                            const NamedTensors& want,
                                            Backend& backend,
                                            Backend& reference) {
  const Node& node = node_of(lone);
  const NamedTensors magnitudes = term_magnitudes(lone, *node.op, operands, reference);
  std::vector<std::string> lines(backend.candidates(node).size());
  for (size_t choice = 0; choice < lines.size(); ++choice) {
    NamedTensors results;
    try {
      results = evaluate(
          lone, backend, operands, [&](const Node&, const std::vector<Choice>&) { return choice; });
    } catch (const UserError& error) {
      lines[choice] = std::string(kCannotRun) + error.message();
    }
    for (const auto& [index, tensor] : results) {
      const auto found = magnitudes.find(index);
      const Tensor* magnitude = found == magnitudes.end() ? nullptr : &found->second;
      const double allowed = tolerance(node, tensor.type().dtype);
      lines[choice] = difference(tensor, want.at(index), allowed, magnitude);
      // An op made of several errs more than one does; twice, as its order of sums is another.
      if (!lines[choice].empty() && allowed > 0)
        lines[choice] =
            difference(tensor,
                       want.at(index),
                       std::max(allowed, 2 * plain_error(lone, operands, want, backend)),
                       magnitude);
      if (!lines[choice].empty() && allowed > 0)
        lines[choice] = difference(tensor,
                                   want.at(index),
                                   allowed,
                                   &sensitivities(lone, operands, want, reference).at(index));
      if (!lines[choice].empty()) break;
    }
  }
  return lines;
}

std::string node_differences(const Graph& graph,
                             const NamedTensors& inputs,
                             Backend& backend,
                             Backend& reference) {
  // All intermediate results, by the name "node.result".
  Graph open = graph.clone();
  for (const auto& node : open.nodes())
    for (size_t i = 0; i < node->outputs.size(); ++i)
      open.add_output(fmt::format("{}.{}", node->id, i), {node.get(), static_cast<int>(i)});
  const NamedTensors all = evaluate(open, reference, inputs);
  const auto named = [&all](const Node& node, int result) {
    return all.at(fmt::format("{}.{}", node.id, result));
  };
  for (const auto& node : graph.nodes()) {
    if (node->is<Input>()) continue;
    NamedTensors operands, want;
    for (const Value& value : node->inputs)
      operands.emplace(fmt::format("{}", operands.size()), named(*value.node, value.index));
    for (size_t i = 0; i < node->outputs.size(); ++i)
      want.emplace(fmt::format("{}", i), named(*node, static_cast<int>(i)));
    const Graph lone = lone_node(*node);
    const auto choices = backend.candidates(node_of(lone));
    if (choices.empty())
      return fmt::format("{} has no kernel for {}", backend.name(), print(*node));
    const auto lines = choice_differences(lone, operands, want, backend, reference);
    for (size_t i = 0; i < lines.size(); ++i)
      if (!lines[i].empty())
        return fmt::format("choice '{}': {} ({})", choices[i].name, lines[i], print(*node));
  }
  return {};
}

}  // namespace ridge
