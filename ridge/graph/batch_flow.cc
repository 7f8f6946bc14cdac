#include "ridge/graph/batch_flow.h"

#include "ridge/graph/graph.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"

namespace ridge {

BatchFlow merge_elementwise(const BatchFlowContext& c) {
  BatchFlow merged = BatchFlow::none(~0u);
  uint32_t uniform = ~0u;  // along which axes all batch-independent inputs stay the same
  for (const BatchFlow& flow : c.flows) {
    if (flow.is_none()) {
      uniform &= flow.uniform;
    } else if (merged.is_none()) {
      merged = flow;
    } else if (merged.axis != flow.axis) {
      return BatchFlow::mixed("two inputs carry the batch on different axes");
    }
  }
  if (merged.is_none()) return BatchFlow::none(uniform);
  if (!(uniform >> merged.axis & 1u))
    return BatchFlow::mixed("an input that is not batched differs along the batch");
  return merged;
}

std::vector<BatchFlow> Op::batch_flow(const BatchFlowContext& c) const {
  BatchFlow flow;
  if (traits().elementwise) {
    flow = merge_elementwise(c);
  } else {
    for (const BatchFlow& input : c.flows)
      if (!input.is_none()) flow = BatchFlow::mixed("the op has no batch rule");
  }
  return std::vector<BatchFlow>(c.outputs.size(), flow);
}

namespace {

// The one batch size of all inputs that carry a batch; 0 when none does.
int64_t batch_size(const Graph& graph) {
  int64_t batch = 0;
  const Node* first = nullptr;
  for (const Node* node : graph.inputs()) {
    const auto& input = node->op_as<Input>();
    if (input.batch < 0) continue;
    const int64_t size = input.shape[static_cast<size_t>(input.batch)];
    if (first == nullptr) first = node;
    check(batch == 0 || batch == size,
          "inputs '{}' and '{}' carry batches of different sizes; got {} and {}",
          first->site.name,
          node->site.name,
          batch,
          size);
    batch = size;
  }
  return batch;
}

// The flow of sums over samples through an op. An op that is linear in several inputs jointly keeps
// a sum when all of them are sums; one that is linear in each alone, when one is and the others do
// not depend on samples. Nothing else does.
BatchFlow flow_of_sums(const Node& node, const std::vector<BatchFlow>& flows) {
  const BatchFlow mixed =
      BatchFlow::mixed("a sum over samples enters an op that is not linear in it");
  if (is_float(node.inputs[0].dtype()) && !is_float(node.outputs[0].dtype)) return mixed;
  const Linearity linear = node.op->linearity();
  size_t sums = 0, joint_others = 0;
  bool each_ok = true, joint_ok = true;
  for (size_t i = 0; i < flows.size(); ++i) {
    const uint32_t bit = i < 32 ? 1u << i : 1u << 31;
    const bool is_sum = flows[i].kind == BatchFlow::Kind::kSum;
    if (!is_sum && !flows[i].is_none())
      return BatchFlow::mixed("a sum over samples meets single samples");
    sums += is_sum;
    if (is_sum && !(linear.each & bit)) each_ok = false;
    if (is_sum && !(linear.joint & bit)) joint_ok = false;
    if (!is_sum && (linear.joint & bit)) ++joint_others;
  }
  if (linear.joint != 0 && joint_ok && joint_others == 0) return BatchFlow::sum();
  if (linear.each != 0 && each_ok && sums == 1) return BatchFlow::sum();
  return mixed;
}

class BatchAnalysis {
 public:
  BatchAnalysis(const Graph& graph, const Graph* twin) : graph_(graph), twin_(twin) {}

  BatchReport run() {
    batch_ = batch_size(graph_);
    for (const auto& node : graph_.nodes()) report_.flows.push_back(flows_of(*node));
    for (const Output& output : graph_.outputs()) {
      BatchFlow& flow = at(output.value);
      if (flow.is_none()) flow = flow_of_batch_shaped(output.value, flow);
      if (flow.kind != BatchFlow::Kind::kMixed || !report_.separable) continue;
      report_.separable = false;
      report_.reason = fmt::format("output '{}': {}", output.name, flow.reason);
    }
    return std::move(report_);
  }

 private:
  BatchFlow& at(const Value& value) {
    return report_.flows[static_cast<size_t>(value.node->id)][static_cast<size_t>(value.index)];
  }

  // An output that no sample reaches but that has a row per sample, such as a gradient of zeros,
  // is split when all rows are the same.
  BatchFlow flow_of_batch_shaped(const Value& value, const BatchFlow& flow) const {
    if (twin_ == nullptr) return flow;
    const Node& other = *twin_->nodes()[static_cast<size_t>(value.node->id)];
    const Shape &shape = value.shape(),
                &larger = other.outputs[static_cast<size_t>(value.index)].shape;
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      if (shape[axis] == larger[axis]) continue;
      if (flow.uniform >> axis & 1u) return BatchFlow::split(static_cast<int64_t>(axis));
      return BatchFlow::mixed(
          fmt::format("the value has a row per sample that is not computed from it, at site '{}'",
                      value.node->site.name));
    }
    return flow;
  }

  std::vector<BatchFlow> flows_of(const Node& node) {
    std::vector<BatchFlow> inputs;
    bool any_sum = false, all_none = true;
    for (const Value& value : node.inputs) {
      const BatchFlow& flow = at(value);
      if (flow.kind == BatchFlow::Kind::kMixed)
        return std::vector<BatchFlow>(node.outputs.size(), flow);  // keeps the first cause
      any_sum = any_sum || flow.kind == BatchFlow::Kind::kSum;
      all_none = all_none && flow.is_none();
      inputs.push_back(flow);
    }
    std::vector<BatchFlow> outputs;
    if (any_sum) {
      BatchFlow flow = flow_of_sums(node, inputs);
      if (accumulates(node))
        flow = BatchFlow::sum();
      else if (spreads_over_batch(node))
        flow = BatchFlow::mixed("a sum over samples is given back to each sample");
      outputs.assign(node.outputs.size(), flow);
    } else if (all_none && depends_on_batch_size(node)) {
      outputs.assign(node.outputs.size(), BatchFlow::mixed("the value depends on the batch size"));
    } else {
      const auto types = node.input_types();
      outputs = node.op->batch_flow({inputs, types, node.outputs, batch_});
    }
    for (BatchFlow& flow : outputs)
      if (flow.kind == BatchFlow::Kind::kMixed)
        flow.reason = fmt::format("{}, at site '{}'", flow.reason, node.site.name);
    return outputs;
  }

  // buffer + sum, which becomes the new buffer: what micro-batches do with gradients.
  bool accumulates(const Node& node) const {
    if (!node.is<Add>()) return false;
    for (const Output& output : graph_.outputs()) {
      if (output.updates.empty() || output.value.node != &node) continue;
      const Node* buffer = graph_.find_input(output.updates);
      for (size_t i = 0; i < 2; ++i)
        if (node.inputs[i].node == buffer && node.inputs[1 - i].node != buffer) return true;
    }
    return false;
  }

  // A sum has no row per sample. Without a twin a broadcast may make one: better refused.
  bool spreads_over_batch(const Node& node) const {
    if (twin_ == nullptr) return node.is<Broadcast>();
    return node.outputs != twin_->nodes()[static_cast<size_t>(node.id)]->outputs;
  }

  // In the twin, built for another batch, a value that no sample reaches must be the same, or the
  // same repeated: a constant made from the batch size, or a count of its elements, is neither.
  bool depends_on_batch_size(const Node& node) const {
    if (twin_ == nullptr) return false;
    const Node& other = *twin_->nodes()[static_cast<size_t>(node.id)];
    if (node.is<Input>()) return node.op_as<Input>().batch < 0 && node.outputs != other.outputs;
    if (node.is<Constant>()) {
      const auto &a = node.op_as<Constant>(), &b = other.op_as<Constant>();
      const bool same = a.values == b.values && a.ints == b.ints;
      return !same || (node.outputs != other.outputs && !a.is_splat());
    }
    return node.input_types() != other.input_types() && node.outputs == other.outputs;
  }

  const Graph& graph_;
  const Graph* twin_;
  int64_t batch_ = 0;
  BatchReport report_;
};

bool same_structure(const Graph& a, const Graph& b) {
  if (a.nodes().size() != b.nodes().size()) return false;
  for (size_t i = 0; i < a.nodes().size(); ++i) {
    const Node &x = *a.nodes()[i], &y = *b.nodes()[i];
    if (x.op->name() != y.op->name() || x.site != y.site || x.inputs.size() != y.inputs.size())
      return false;
    for (size_t j = 0; j < x.inputs.size(); ++j)
      if (x.inputs[j].node->id != y.inputs[j].node->id || x.inputs[j].index != y.inputs[j].index)
        return false;
  }
  return true;
}

}  // namespace

BatchReport analyze_batch(const Graph& graph) { return BatchAnalysis(graph, nullptr).run(); }

BatchReport analyze_batch(FunctionRef<Graph(int64_t)> build, int64_t batch) {
  const Graph graph = build(batch), twin = build(2 * batch);
  if (same_structure(graph, twin)) return BatchAnalysis(graph, &twin).run();
  BatchReport report;
  report.separable = false;
  report.reason = "the graph has another structure when the batch is doubled";
  return report;
}

}  // namespace ridge
