#include "ridge/graph/ops/fused.h"

#include <algorithm>
#include <set>

#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/registry.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/graph/text.h"

namespace ridge {
namespace {

size_t index_of(const Node& node) { return static_cast<size_t>(node.id); }

LoopDomain domain_of(const Fused& op, const Graph& body) {
  check(!body.outputs().empty(), "[fused] the body has no outputs");
  const bool has_neither = op.rows == 0 && op.columns == 0;
  const bool is_flat = op.rows == 1 && op.columns >= 1;
  const bool has_rows = op.rows >= 2 && op.columns >= 2 && op.columns <= kMostLoopColumns &&
                        op.rows < int64_t{1} << 48;
  check(has_neither || is_flat || has_rows,
        "[fused] no such rows and columns; got {} and {}",
        op.rows,
        op.columns);
  if (has_neither) return {body.outputs()[0].value.type().elements(), 0};
  return {op.rows * op.columns, has_rows ? op.columns : 0};
}

void find_roles(FusedBody& body) {
  std::set<const Node*> marked;  // whose columns one-hots mark
  for (const auto& node : body.graph.nodes()) {
    if (node->is<Input>()) {
      body.roles.push_back(LoopRole::kOuter);
      continue;
    }
    std::vector<LoopRole> inputs;
    for (const Value& value : node->inputs) inputs.push_back(body.role(*value.node));
    std::string_view why;
    body.roles.push_back(loop_role(*node, inputs, body.domain, &why));
    if (node->is<OneHot>() && marked.insert(node->inputs[0].node).second && marked.size() > 1)
      body.roles.back() = LoopRole::kNone, why = "marks other columns than another";
    if (body.roles.back() == LoopRole::kNone)
      throw UserError(fmt::format("[fused] node '{}' of the body {}", node->site.name, why));
  }
}

// The value of level n of a row is complete before the n-th pass over the row's elements.
void find_levels(FusedBody& body) {
  for (const auto& node : body.graph.nodes()) {
    int level = 0;
    for (const Value& input : node->inputs) level = std::max(level, body.level(*input.node));
    const bool ends_pass = is_loop_reduction(*node) || node->is<Pick>();
    body.levels.push_back(level + (ends_pass && body.role(*node) == LoopRole::kRow));
  }
}

bool is_result(LoopRole role) {
  return is_domain(role) || role == LoopRole::kRow || role == LoopRole::kColumns ||
         role == LoopRole::kTotal;
}

void check_inputs(const Graph& body, std::span<const TensorType> inputs) {
  const std::vector<Node*> body_inputs = body.inputs();
  check(body_inputs.size() == inputs.size(),
        "[fused] wrong number of inputs; got {}, the body has {}",
        inputs.size(),
        body_inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Node* input = body.find_input(fmt::format("{}", i));
    check(input != nullptr, "[fused] the body has no input '{}'", i);
    check(input->outputs[0] == inputs[i],
          "[fused] input {} has another type; got {}, the body has {}",
          i,
          to_string(inputs[i]),
          to_string(input->outputs[0]));
  }
}

FusedBody parse_body(const Fused& op) {
  FusedBody body{.text = op.body,
                 .graph = parse_graph(op.body, "fused body"),
                 .domain = {},
                 .roles = {},
                 .levels = {}};
  body.domain = domain_of(op, body.graph);
  find_roles(body);
  find_levels(body);
  for (size_t i = 0; i < body.graph.outputs().size(); ++i) {
    const Output& output = body.graph.outputs()[i];
    check(output.name == fmt::format("{}", i) && output.updates.empty(),
          "[fused] output {} of the body must be named '{}'",
          i,
          i);
    check(is_result(body.role(*output.value.node)),
          "[fused] output {} of the body is not computed from its inputs",
          i);
  }
  return body;
}

}  // namespace

const FusedBody& read_body(const Fused& op) {
  const auto is_same = [&](const FusedBody& known) {
    if (known.text != op.body) return false;
    const LoopDomain domain = domain_of(op, known.graph);
    return known.domain.elements == domain.elements && known.domain.columns == domain.columns;
  };
  if (op.read_ == nullptr || !is_same(*op.read_))
    op.read_ = std::make_shared<const FusedBody>(parse_body(op));
  return *op.read_;
}

std::vector<TensorType> Fused::infer(std::span<const TensorType> inputs) const {
  const FusedBody& parsed = read_body(*this);
  check_inputs(parsed.graph, inputs);
  std::vector<TensorType> types;
  for (const Output& output : parsed.graph.outputs()) types.push_back(output.value.type());
  return types;
}

std::vector<Value> Fused::expand(std::span<const Value> inputs) const {
  const Graph& graph = read_body(*this).graph;
  std::vector<Value> values(graph.nodes().size());
  Graph& to = inputs[0].graph();
  for (const auto& node : graph.nodes()) {
    if (node->is<Input>()) {
      values[index_of(*node)] = inputs[input_number(*node)];
      continue;
    }
    std::vector<Value> operands;
    for (const Value& input : node->inputs) operands.push_back(values[index_of(*input.node)]);
    values[index_of(*node)] = {&to.add(node->op, std::move(operands)), 0};
  }
  std::vector<Value> results;
  for (const Output& output : graph.outputs())
    results.push_back(values[index_of(*output.value.node)]);
  return results;
}

Cost Fused::cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const {
  const Graph& graph = read_body(*this).graph;
  Cost cost{.flops = 0, .bytes = total_bytes(inputs) + total_bytes(outputs)};
  for (const auto& node : graph.nodes())
    if (is_fusible(*node) || is_loop_reduction(*node))
      cost.flops += node->op->cost(node->input_types(), node->outputs).flops;
  return cost;
}

std::vector<BatchFlow> Fused::batch_flow(const BatchFlowContext& c) const {
  const bool depends = std::any_of(
      c.flows.begin(), c.flows.end(), [](const BatchFlow& flow) { return !flow.is_none(); });
  // Nothing asks after fusion; the body would have to be followed node by node.
  return std::vector<BatchFlow>(
      c.outputs.size(),
      depends ? BatchFlow::mixed("a fused node is not followed") : BatchFlow::none());
}

namespace {

// The last pass that reads each node's elements: of a value of the domain, that of the last
// reduction or result that depends on it without a reduction of the row in between.
std::vector<int> last_passes(const FusedBody& body) {
  const auto& nodes = body.graph.nodes();
  std::vector<int> last(nodes.size(), -1);
  for (const Output& output : body.graph.outputs()) {
    const Node& node = *output.value.node;
    if (is_domain(body.role(node))) last[index_of(node)] = body.level(node);
  }
  for (size_t i = nodes.size(); i-- > 0;) {
    const Node& node = *nodes[i];
    const bool is_end = !is_domain(body.role(node));
    for (const Value& input : node.inputs) {
      int& reads = last[index_of(*input.node)];
      // A node that makes a value of each row reads its inputs in the pass before that value is
      // there.
      const int own = body.level(node) - (body.role(node) == LoopRole::kRow);
      reads = std::max(reads, is_end ? own : last[i]);
    }
  }
  return last;
}

}  // namespace

// Rows run one after the other and each in passes, the results of a level in its pass: an element
// may be written once nothing in a later pass reads it.
bool Fused::may_overwrite(size_t result, size_t input) const {
  if (rows < 2) return true;
  if (overwrites_ == nullptr) {
    const FusedBody& parsed = read_body(*this);
    const std::vector<int> last = last_passes(parsed);
    auto answers = std::make_shared<std::vector<bool>>();
    for (const Output& output : parsed.graph.outputs()) {
      const Node& made = *output.value.node;
      for (size_t i = 0; i < parsed.graph.inputs().size(); ++i) {
        const Node& from = *parsed.graph.find_input(fmt::format("{}", i));
        answers->push_back(is_domain(parsed.role(made)) &&
                           from.outputs[0].elements() == parsed.domain.elements &&
                           last[index_of(from)] <= parsed.level(made));
      }
    }
    input_count_ = parsed.graph.inputs().size();
    overwrites_ = std::move(answers);
  }
  return overwrites_->at(result * input_count_ + input);
}

void Fused::fields(FieldVisitor& v) {
  v.visit("body", body);
  v.visit("rows", rows);
  v.visit("columns", columns);
}

size_t input_number(const Node& node) { return std::stoul(node.op_as<Input>().input_name); }

const Node* before_rounding(const Node& result) {
  const Node& cast = behind_reshapes(result);
  if (!cast.is<Cast>() || size_of(cast.outputs[0].dtype) != 2 ||
      cast.inputs[0].dtype() != DType::kF32)
    return nullptr;
  return &behind_reshapes(*cast.inputs[0].node);
}

Node& fused(Graph& graph,
            const Graph& body,
            std::vector<Value> inputs,
            Site site,
            const LoopDomain& domain) {
  auto op = std::make_shared<Fused>();
  op->body = print(body);
  if (domain.elements != 0) {
    op->rows = domain.columns == 0 ? 1 : domain.rows();
    op->columns = domain.columns == 0 ? domain.elements : domain.columns;
  }
  return graph.add(std::move(op), std::move(inputs), std::move(site));
}

void register_fused(OpRegistry& r) { r.add<Fused>(); }

}  // namespace ridge
