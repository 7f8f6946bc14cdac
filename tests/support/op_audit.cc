#include "tests/support/op_audit.h"

#include "ridge/graph/ops/source.h"
#include "ridge/graph/text.h"
#include "ridge/graph/verify.h"
#include "tests/support/compare.h"
#include "tests/support/gradient_check.h"
#include "tests/support/lowered.h"

namespace ridge::test {

std::vector<OpSample>& all_samples() {
  static std::vector<OpSample> samples;
  return samples;
}

OpSamples::OpSamples(std::vector<OpSample> samples) {
  for (OpSample& sample : samples) all_samples().push_back(std::move(sample));
}

namespace {

class OpAudit {
 public:
  OpAudit(const OpRegistry& registry, std::string name, Backend& backend, Backend& reference)
      : registry_(registry), name_(std::move(name)), backend_(backend), reference_(reference) {}

  std::vector<std::string> run(const std::vector<OpSample>& samples) {
    std::shared_ptr<Op> op;
    try {
      op = registry_.create(name_);
    } catch (const UserError& error) {
      problem("", error.what());
      return std::move(problems_);
    }
    if (op->name() != name_) problem("", fmt::format("its serialized name is '{}'", op->name()));
    const OpTraits& traits = op->traits();
    if (traits.gradient == Gradient::kUndeclared)
      problem("", "it declares neither a gradient nor that it has none");
    if (traits.dtypes.bits == 0) problem("", "it accepts no dtype");
    bool has_sample = false;
    for (const OpSample& sample : samples) {
      if (sample.op != name_) continue;
      has_sample = true;
      for (DType dtype : kAllDTypes)
        if (traits.dtypes.has(dtype)) check_sample(sample, dtype, traits);
    }
    if (!has_sample) problem("", "it has no sample for the gradient check");
    const bool differentiable =
        traits.gradient == Gradient::kRule || traits.gradient == Gradient::kExpand;
    if (has_sample && differentiable && gradients_checked_ == 0)
      problem("", "no sample checked its gradient");
    return std::move(problems_);
  }

 private:
  void problem(std::string_view label, std::string_view text) {
    problems_.push_back(
        fmt::format("op '{}'{}{}: {}", name_, label.empty() ? "" : ", ", label, text));
  }

  void check_sample(const OpSample& sample, DType dtype, const OpTraits& traits) {
    const std::string label = fmt::format("sample '{}' in {}", sample.label, name_of(dtype));
    try {
      CaseBuilder builder(dtype, 17 + static_cast<uint64_t>(dtype));
      builder.finish(sample.build(builder));
      const Node* node = find_node(builder.graph());
      if (node == nullptr) return problem(label, "the sample does not use the op");
      if (node->outputs.empty()) return problem(label, "its shape rule gives no result");
      const bool computed = !node->is<Input>();
      if (computed && !(runs_on(backend_, *node) && runs_on(reference_, *node)))
        return problem(
            label, fmt::format("no kernel on '{}' or '{}'", backend_.name(), reference_.name()));
      if (const std::string text = node_differences(
              lowered(builder.graph(), backend_), builder.tensors(), backend_, reference_);
          !text.empty())
        problem(label, text);
      if (dtype == DType::kF64) check_expansion(label, *node, builder);
      const bool differentiable =
          traits.gradient == Gradient::kRule || traits.gradient == Gradient::kExpand;
      // An op on bool or integers may still have float operands besides, in f64 among others.
      const bool has_f64 = dtype == DType::kF64 || !traits.dtypes.has(DType::kF64);
      if (has_f64 && differentiable && sample.check_gradient) check_gradient(label, builder);
      check_text(label, builder.graph());
    } catch (const std::exception& error) {
      problem(label, error.what());
    }
  }

  // A GPU may have a plain form instead of a kernel, a host has a kernel of each op. Whether the
  // plain form has kernels is seen by the comparison.
  static bool runs_on(Backend& backend, const Node& node) {
    return !backend.candidates(node).empty() || (!backend.is_host() && node.op->has_plain_form());
  }

  const Node* find_node(const Graph& graph) const {
    for (const auto& node : graph.nodes())
      if (node->op->name() == name_) return node.get();
    return nullptr;
  }

  void check_text(std::string_view label, const Graph& graph) {
    verify(graph);
    const std::string text = print(graph);
    if (print(parse_graph(text)) != text) problem(label, "the printed graph parses to another");
  }

  // The op on the reference against its own plain form on the reference.
  void check_expansion(std::string_view label, const Node& node, CaseBuilder& builder) {
    Graph graph = builder.graph().clone();
    Node& copy = *graph.nodes()[static_cast<size_t>(node.id)];
    const std::vector<Value> plain = copy.op->expand(copy.inputs);
    if (plain.empty() == copy.op->has_plain_form())
      problem(label, "has_plain_form() is not what expand() gives");
    if (plain.empty()) return;
    for (size_t i = 0; i < plain.size(); ++i) {
      graph.add_output(fmt::format("op{}", i), {&copy, static_cast<int>(i)});
      graph.add_output(fmt::format("plain{}", i), plain[i]);
    }
    const NamedTensors results = evaluate(graph, reference_, builder.tensors());
    for (size_t i = 0; i < plain.size(); ++i) {
      const std::string text = difference(
          results.at(fmt::format("op{}", i)), results.at(fmt::format("plain{}", i)), 1e-12);
      if (!text.empty()) problem(label, "it differs from its expansion: " + text);
    }
  }

  void check_gradient(std::string_view label, CaseBuilder& builder) {
    const GradientCheck check =
        check_gradients(builder.graph(), builder.tensors(), backend_, reference_, 7);
    gradients_checked_ += check.inputs_checked;
    if (check.unresolved > 0) problem(label, "a gradient is zero: the check checks nothing");
    if (!check.problem.empty()) problem(label, "gradient: " + check.problem);
  }

  const OpRegistry& registry_;
  std::string name_;
  Backend &backend_, &reference_;
  std::vector<std::string> problems_;
  int gradients_checked_ = 0;
};

}  // namespace

std::vector<std::string> audit_op(const OpRegistry& registry,
                                  const std::string& name,
                                  const std::vector<OpSample>& samples,
                                  Backend& backend,
                                  Backend& reference) {
  return OpAudit(registry, name, backend, reference).run(samples);
}

}  // namespace ridge::test
