#include "ridge/graph/autodiff.h"

#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/source.h"

namespace ridge {
namespace {

class ReversePass {
 public:
  ReversePass(Graph& graph, std::span<const Value> wrt, size_t first)
      : graph_(graph), first_(first), depends_(graph.nodes().size()), gradients_(depends_.size()) {
    for (size_t i = 0; i < depends_.size(); ++i) {
      depends_[i].resize(graph.nodes()[i]->outputs.size());
      gradients_[i].resize(depends_[i].size());
    }
    for (const Value& value : wrt)
      depends_[id(*value.node)][static_cast<size_t>(value.index)] = is_float(value.dtype());
    for (size_t i = first_; i < depends_.size(); ++i) {
      const Node& node = *graph.nodes()[i];
      if (!has_dependent_input(node)) continue;
      for (size_t k = 0; k < node.outputs.size(); ++k)
        if (is_float(node.outputs[k].dtype)) depends_[i][k] = true;
    }
  }

  void run(std::span<const Value> outputs, std::span<const Value> seeds) {
    for (size_t i = 0; i < outputs.size(); ++i)
      if (depends(outputs[i])) accumulate(outputs[i], seeds[i]);
    for (size_t i = gradients_.size(); i-- > first_;) visit(*graph_.nodes()[i]);
  }

  Value gradient(const Value& value) const {
    return gradients_[id(*value.node)][static_cast<size_t>(value.index)];
  }

 private:
  static size_t id(const Node& node) { return static_cast<size_t>(node.id); }

  bool depends(const Value& value) const {
    return depends_[id(*value.node)][static_cast<size_t>(value.index)];
  }

  bool has_dependent_input(const Node& node) const {
    for (const Value& input : node.inputs)
      if (depends(input)) return true;
    return false;
  }

  void accumulate(const Value& value, Value term) {
    check_internal(term.type() == value.type(),
                   "gradient of '{}' has type {}, expected {}",
                   value.node->site.name,
                   to_string(term.type()),
                   to_string(value.type()));
    Value& sum = gradients_[id(*value.node)][static_cast<size_t>(value.index)];
    sum = sum ? add(sum, term) : term;
  }

  void visit(Node& node) {
    const std::vector<Value> douts = gradients_[id(node)];
    bool any_gradient = false;
    for (const Value& dout : douts) any_gradient = any_gradient || dout;
    if (!any_gradient || !has_dependent_input(node)) return;

    const OpTraits& traits = node.op->traits();
    if (traits.gradient == Gradient::kZero) return;
    check(traits.gradient != Gradient::kNone,
          "[{}] has no gradient, and one is asked for at site '{}'",
          traits.name,
          node.site.name);
    const SiteScope scope(graph_, node.site.name + "/grad", SiteScope::Path::kAbsolute);
    const std::vector<Value> terms = node.op->vjp({node, douts});
    check_internal(terms.size() == node.inputs.size(),
                   "[{}] vjp gave {} gradients for {} inputs",
                   traits.name,
                   terms.size(),
                   node.inputs.size());
    for (size_t i = 0; i < terms.size(); ++i)
      if (terms[i] && depends(node.inputs[i])) accumulate(node.inputs[i], terms[i]);
  }

  Graph& graph_;
  size_t first_;
  std::vector<std::vector<bool>> depends_;     ///< By node and output: depends on a value of wrt.
  std::vector<std::vector<Value>> gradients_;  ///< By node and output; null so far.
};

}  // namespace

std::vector<Value> vector_jacobian_product(std::span<const Value> outputs,
                                           std::span<const Value> seeds,
                                           std::span<const Value> wrt,
                                           size_t first_node) {
  check_internal(outputs.size() == seeds.size(), "each output needs a seed");
  if (outputs.empty()) return std::vector<Value>(wrt.size());
  for (size_t i = 0; i < outputs.size(); ++i)
    check(outputs[i].type() == seeds[i].type(),
          "the seed of '{}' has another type; got {}, expected {}",
          outputs[i].node->site.name,
          to_string(seeds[i].type()),
          to_string(outputs[i].type()));
  ReversePass pass(outputs[0].graph(), wrt, first_node);
  pass.run(outputs, seeds);
  std::vector<Value> gradients;
  for (const Value& value : wrt) gradients.push_back(pass.gradient(value));
  return gradients;
}

std::vector<Value> gradients(Value loss, std::span<const Value> wrt) {
  check(is_float(loss.dtype()) && loss.rank() == 0,
        "the loss must be a float scalar; got {}, at site '{}'",
        to_string(loss.type()),
        loss.node->site.name);
  for (const Value& value : wrt)
    check(is_float(value.dtype()),
          "a gradient needs a float; got {}, at site '{}'",
          to_string(value.type()),
          value.node->site.name);
  const Value one = constant_like(loss, 1.0);
  const Value outputs[] = {loss}, seeds[] = {one};
  std::vector<Value> result = vector_jacobian_product(outputs, seeds, wrt);
  for (size_t i = 0; i < result.size(); ++i)
    if (!result[i]) result[i] = constant_like(wrt[i], 0.0);
  return result;
}

}  // namespace ridge
