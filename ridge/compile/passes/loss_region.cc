#include "ridge/compile/passes/loss_region.h"

#include <algorithm>
#include <set>

#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/softmax.h"
#include "ridge/graph/ops/source.h"
#include "ridge/graph/rewrite.h"

namespace ridge {
namespace {

bool is_splat(const Node& node) { return node.is<Constant>() && node.op_as<Constant>().is_splat(); }

// How many leading dimensions count the rows; none where no number of them does. Two values of one
// shape get the same answer, so operands of an elementwise op still fit.
std::optional<size_t> row_dimensions(const Shape& shape, int64_t rows) {
  int64_t product = 1;
  for (size_t i = 0; i < shape.size() && product <= rows; ++i) {
    product *= shape[i];
    if (product == rows) return i + 1;
  }
  return std::nullopt;
}

// The axes where all dimensions that count rows have become axis 0; none where only some of them
// are among the axes.
std::optional<std::vector<int64_t>> joined_axes(const std::vector<int64_t>& axes, size_t leading) {
  const auto count = static_cast<int64_t>(leading);
  std::vector<int64_t> joined;
  int64_t rows = 0;
  for (const int64_t axis : axes) {
    if (axis < count)
      ++rows;
    else
      joined.push_back(axis - count + 1);
  }
  if (rows != 0 && rows != count) return std::nullopt;
  if (rows != 0) joined.insert(joined.begin(), 0);
  return joined;
}

template <typename T>
std::shared_ptr<const Op> with_shape(const Node& node, int64_t rows, int64_t part) {
  const auto shape = shape_of_rows(node.outputs[0].shape, rows, part);
  if (!shape) return nullptr;
  T op = node.op_as<T>();
  op.shape = *shape;
  return std::make_shared<const T>(std::move(op));
}

template <typename T>
std::shared_ptr<const Op> with_axes(const Node& node, int64_t rows) {
  const auto leading = row_dimensions(node.inputs[0].shape(), rows);
  T op = node.op_as<T>();
  const auto axes = leading ? joined_axes(op.axes, *leading) : std::nullopt;
  if (!axes) return nullptr;
  op.axes = *axes;
  return std::make_shared<const T>(std::move(op));
}

std::shared_ptr<const Op> with_axis(const Node& node, int64_t rows) {
  const auto leading = row_dimensions(node.inputs[0].shape(), rows);
  ArgMax op = node.op_as<ArgMax>();
  const auto axes = leading ? joined_axes({op.axis}, *leading) : std::nullopt;
  if (!axes) return nullptr;
  op.axis = axes->front();
  return std::make_shared<const ArgMax>(std::move(op));
}

}  // namespace

std::optional<Shape> shape_of_rows(const Shape& shape, int64_t rows, int64_t part) {
  const auto leading = row_dimensions(shape, rows);
  if (!leading) return std::nullopt;
  Shape joined{part};
  joined.insert(joined.end(), shape.begin() + static_cast<std::ptrdiff_t>(*leading), shape.end());
  return joined;
}

std::shared_ptr<const Op> op_for_rows(const Node& node, int64_t rows, int64_t part) {
  if (is_splat(node)) return with_shape<Constant>(node, rows, part);
  if (node.is<Reshape>()) return with_shape<Reshape>(node, rows, part);
  if (node.is<Broadcast>()) return with_shape<Broadcast>(node, rows, part);
  if (node.is<ReduceSum>()) return with_axes<ReduceSum>(node, rows);
  if (node.is<ReduceMean>()) return with_axes<ReduceMean>(node, rows);
  if (node.is<ReduceMax>()) return with_axes<ReduceMax>(node, rows);
  if (node.is<ArgMax>()) return with_axis(node, rows);
  const bool is_as_it_is = node.op->traits().elementwise || node.is<MatMul>() ||
                           node.is<Softmax>() || node.is<LogSoftmax>() || node.is<CrossEntropy>() ||
                           node.is<OneHot>() || node.is<Pick>();
  return is_as_it_is ? node.op : nullptr;
}

namespace {

class RegionFinder {
 public:
  explicit RegionFinder(const Graph& graph)
      : graph_(graph),
        live_(live_nodes(graph)),
        readers_(graph.nodes().size()),
        is_output_(graph.nodes().size()) {
    for (const auto& node : graph.nodes()) {
      if (!live_[id(*node)]) continue;
      for (const Value& input : node->inputs) readers_[id(*input.node)].push_back(node.get());
    }
    for (const Output& output : graph.outputs()) is_output_[id(*output.value.node)] = true;
  }

  std::optional<LossRegion> run() {
    const Node* const loss = largest_loss();
    if (loss == nullptr) return std::nullopt;
    const Value logits = loss->inputs[0];
    elements_ = logits.type().elements();
    region_.rows = elements_ / logits.dim(-1);
    if (region_.rows < 2 || !grow(*logits.node) || !close()) return std::nullopt;
    add_constants();
    for (auto& [node, member] : region_.members)
      if (!follow(*graph_.nodes()[static_cast<size_t>(node)], member)) return std::nullopt;
    return std::move(region_);
  }

 private:
  static size_t id(const Node& node) { return static_cast<size_t>(node.id); }

  const Node* largest_loss() const {
    const Node* largest = nullptr;
    const auto size = [](const Node& node) { return node.inputs[0].type().elements(); };
    for (const auto& node : graph_.nodes())
      if (live_[id(*node)] && node->is<CrossEntropy>() &&
          (largest == nullptr || size(*node) > size(*largest)))
        largest = node.get();
    return largest;
  }

  bool has_rule(const Node& node) const {
    return op_for_rows(node, region_.rows, region_.rows) != nullptr;
  }

  // From the logits both ways, through all values of their size, to the products that make them
  // and whatever reads them. False where somebody wants one of them as a whole.
  bool grow(const Node& logits) {
    std::vector<const Node*> open{&logits};
    std::set<const Node*> seen{&logits};
    const auto look_at = [&](const Node& node) {
      if (seen.insert(&node).second) open.push_back(&node);
    };
    while (!open.empty()) {
      const Node& node = *open.back();
      open.pop_back();
      if (!has_rule(node) || is_output_[id(node)]) return false;
      region_.members.try_emplace(node.id);
      if (!node.is<MatMul>())
        for (const Value& input : node.inputs)
          if (input.type().elements() == elements_ && has_rule(*input.node)) look_at(*input.node);
      for (const Node* reader : readers_[id(node)]) {
        if (!has_rule(*reader)) return false;
        // A product of logits has as many elements as the logits only by chance: the region ends
        // there.
        const bool goes_on = !reader->is<MatMul>() && reader->outputs[0].elements() == elements_;
        if (goes_on)
          look_at(*reader);
        else
          region_.members.try_emplace(reader->id);
      }
    }
    return true;
  }

  // Adds what lies between two nodes of the region.
  bool close() {
    const size_t count = graph_.nodes().size();
    std::vector<bool> before(count), behind(count);
    const auto is_member = [&](size_t i) { return region_.members.contains(static_cast<int>(i)); };
    for (size_t i = 0; i < count; ++i) {
      const auto& inputs = graph_.nodes()[i]->inputs;
      behind[i] = is_member(i) || std::any_of(inputs.begin(), inputs.end(), [&](const Value& v) {
                    return behind[id(*v.node)];
                  });
    }
    for (size_t i = count; i-- > 0;)
      before[i] = is_member(i) || std::any_of(readers_[i].begin(), readers_[i].end(), [&](auto* r) {
                    return before[id(*r)];
                  });
    for (size_t i = 0; i < count; ++i) {
      if (!live_[i] || !before[i] || !behind[i]) continue;
      if (!has_rule(*graph_.nodes()[i])) return false;
      region_.members.try_emplace(static_cast<int>(i));
    }
    return true;
  }

  // A splat constant is made for each part rather than cut.
  void add_constants() {
    std::vector<int> found;
    for (const auto& [node, member] : region_.members)
      for (const Value& input : graph_.nodes()[static_cast<size_t>(node)]->inputs)
        if (is_splat(*input.node) && has_rule(*input.node)) found.push_back(input.node->id);
    for (const int node : found) region_.members.try_emplace(node);
  }

  // Finds the flows of the node's results by its batch rule. Operands from outside are taken as
  // rows where the rule allows it.
  bool follow(const Node& node, LossRegion::Member& member) const {
    std::vector<size_t> free;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const Value& input = node.inputs[i];
      const bool is_inside = region_.contains(*input.node);
      if (is_inside && flow_of(input).kind == BatchFlow::Kind::kSum) return false;
      if (!is_inside) free.push_back(i);
    }
    constexpr size_t kMostFree = 4;
    if (free.size() > kMostFree) return false;
    for (size_t whole = 0; whole < size_t{1} << free.size(); ++whole) {
      member.by_rows.assign(node.inputs.size(), true);
      for (size_t i = 0; i < free.size(); ++i) member.by_rows[free[i]] = (whole >> i & 1u) == 0;
      if (follows_as(node, member)) return true;
    }
    return false;
  }

  const BatchFlow& flow_of(Value value) const {
    return region_.members.at(value.node->id).flows.at(static_cast<size_t>(value.index));
  }

  bool follows_as(const Node& node, LossRegion::Member& member) const {
    std::vector<BatchFlow> flows;
    std::vector<TensorType> inputs, outputs;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const Value& input = node.inputs[i];
      TensorType type = input.type();
      if (member.by_rows[i]) {
        const auto shape = shape_of_rows(type.shape, region_.rows, region_.rows);
        if (!shape) return false;
        type.shape = *shape;
      }
      inputs.push_back(type);
      if (region_.contains(*input.node))
        flows.push_back(flow_of(input));
      else
        flows.push_back(member.by_rows[i] ? BatchFlow::split(0) : BatchFlow::none());
    }
    const auto op = op_for_rows(node, region_.rows, region_.rows);
    try {
      outputs = op->infer(inputs);
    } catch (const UserError&) {
      return false;  // its operands do not fit any more once their rows are one dimension
    }
    member.flows = op->batch_flow({flows, inputs, outputs, region_.rows});
    for (size_t i = 0; i < outputs.size(); ++i)
      if (!is_as_expected(member.flows[i], outputs[i], node.outputs[i])) return false;
    return true;
  }

  // A result that is cut has the rows of the node's own result; a sum is that result, but for the
  // dimensions of size 1 that it keeps.
  bool is_as_expected(const BatchFlow& flow, const TensorType& made, const TensorType& own) const {
    if (flow.kind == BatchFlow::Kind::kSum)
      return made.dtype == own.dtype && made.elements() == own.elements();
    const bool is_of_rows =
        flow.is_split_on(0) || (flow.is_none() && (flow.uniform & 1u) != 0 && made.rank() > 0);
    return is_of_rows && made.dtype == own.dtype &&
           shape_of_rows(own.shape, region_.rows, region_.rows) == made.shape;
  }

  const Graph& graph_;
  std::vector<bool> live_;
  std::vector<std::vector<const Node*>> readers_;  ///< By node id, the live ones.
  std::vector<bool> is_output_;
  int64_t elements_ = 0;  ///< Elements of the logits.
  LossRegion region_;
};

}  // namespace

std::optional<LossRegion> find_loss_region(const Graph& graph) { return RegionFinder(graph).run(); }

}  // namespace ridge
