#include "tests/support/gradient_check.h"

#include <cmath>

#include "ridge/graph/autodiff.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/source.h"
#include "tests/support/case_builder.h"
#include "tests/support/lowered.h"

namespace ridge::test {
namespace {

constexpr double kAllowed = 1e-6;

// Adds the loss: a sum of all float outputs under random weights, as an output "loss". The weights
// are inputs, so that the graph does not grow with them.
Graph with_loss(const Graph& graph, NamedTensors& inputs, Random& random) {
  Graph result = graph.clone();
  Value loss;
  const std::vector<Output> outputs = result.outputs();
  for (const Output& output : outputs) {
    if (!is_float(output.value.dtype())) continue;
    const std::string name = "weight." + output.name;
    Tensor weight(output.value.type());
    for (int64_t i = 0; i < weight.elements(); ++i)
      weight.set(i, random.uniform(0.5, 1.5) * (random.chance(0.5) ? 1 : -1));
    const Value w = input(result, name, output.value.type());
    inputs.emplace(name, std::move(weight));
    const Value term = cast(reduce_sum(output.value * w), DType::kF64);
    loss = loss ? loss + term : term;
  }
  check_internal(static_cast<bool>(loss), "no float output");
  result.add_output("loss", loss);
  return result;
}

double loss_at(const Graph& graph,
               NamedTensors inputs,
               const std::string& name,
               const Tensor& direction,
               double step,
               Backend& backend) {
  Tensor& x = inputs.at(name);
  for (int64_t i = 0; i < x.elements(); ++i) x.set(i, x.at(i) + step * direction.at(i));
  return evaluate(graph, backend, inputs).at("loss").at(0);
}

// Central differences with steps h and h/2, extrapolated: error O(h^4).
double numeric_derivative(const Graph& graph,
                          const NamedTensors& inputs,
                          const std::string& name,
                          const Tensor& direction,
                          Backend& backend) {
  const auto central = [&](double h) {
    return (loss_at(graph, inputs, name, direction, h, backend) -
            loss_at(graph, inputs, name, direction, -h, backend)) /
           (2 * h);
  };
  constexpr double kStep = 2e-3;
  return (4 * central(kStep / 2) - central(kStep)) / 3;
}

}  // namespace

GradientCheck check_gradients(const Graph& graph,
                              const NamedTensors& original,
                              Backend& backend,
                              Backend& reference,
                              uint64_t seed) {
  Random random(seed);
  NamedTensors inputs = original;
  const Graph forward = with_loss(graph, inputs, random);
  Graph full = forward.clone();
  std::vector<Value> wrt;
  std::vector<std::string> names;
  for (Node* node : full.inputs()) {
    const std::string& name = node->op_as<Input>().input_name;
    if (node->outputs[0].dtype != DType::kF64 || name.starts_with("weight.")) continue;
    wrt.push_back({node, 0});
    names.push_back(name);
  }
  const std::vector<Value> gradient = gradients(full.outputs().back().value, wrt);
  for (size_t i = 0; i < names.size(); ++i) full.add_output("gradient." + names[i], gradient[i]);
  const NamedTensors results = evaluate(lowered(full, backend), backend, inputs);

  const double loss_size = std::max(1.0, std::fabs(results.at("loss").at(0)));
  GradientCheck report;
  for (const std::string& name : names) {
    const Tensor& g = results.at("gradient." + name);
    Tensor direction(g.type());
    for (int64_t i = 0; i < direction.elements(); ++i) direction.set(i, random.uniform(-1.0, 1.0));
    double analytic = 0;
    for (int64_t i = 0; i < g.elements(); ++i) analytic += g.at(i) * direction.at(i);
    const double numeric = numeric_derivative(forward, inputs, name, direction, reference);
    const double size = std::max(std::fabs(analytic), std::fabs(numeric));
    // Two losses of some hundred roundings differ by a noise of their own, which a step of 1e-3
    // divides by.
    constexpr double kNoise = 1e-12;
    const double beyond = std::fabs(analytic - numeric) - kNoise * loss_size;
    const double error = size == 0 ? 0 : std::max(0.0, beyond) / size;
    ++report.inputs_checked;
    // Below this the differences show only that both are small.
    if (size <= 1e-8 * loss_size) {
      ++report.unresolved;
      continue;
    }
    report.worst = std::max(report.worst, error);
    if (!(error <= kAllowed))
      report.problem =
          fmt::format("input '{}': autodiff {:.12g}, differences {:.12g}, error {:.3g}",
                      name,
                      analytic,
                      numeric,
                      error);
    if (!report.problem.empty()) return report;
  }
  return report;
}

}  // namespace ridge::test
