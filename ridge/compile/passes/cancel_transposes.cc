// Moves transposes down to where another one undoes them: past elementwise ops, reductions, concats
// and pads.
//
//   a = transpose(x, 0 3 1 2)           b = relu(x)
//   b = relu(a)                   ->    c = conv2d(b, w)
//   c = conv2d(transpose(b, 0 2 3 1), w)
//
// An importer of a model of (N, C, H, W) puts a transpose before and behind each op that has
// (N, H, W, C), and only the outer ones remain. A transpose moves where it is then read by nobody
// above, so that there are never more than before, nor much larger ones. Numbers, and values that
// are broadcast along all axes but one, such as those of channels, need no transpose; nor do
// broadcasts of what is transposed alike. Elements keep their bits; sums over moved axes come in
// another order.
#include <algorithm>

#include "ridge/compile/passes/pattern.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"

namespace ridge {
namespace {

using Axes = std::vector<int64_t>;

size_t at(int64_t axis) { return static_cast<size_t>(axis); }

// Returns `values`, which go by the axes of a transpose's result, by the axes of its operand.
Axes moved_down(const Axes& values, const Axes& perm) {
  Axes moved(values.size());
  for (size_t i = 0; i < perm.size(); ++i) moved[at(perm[i])] = values[i];
  return moved;
}

class Mover {
 public:
  explicit Mover(const Graph& graph) : readers_(graph), rewrite_(graph) {}

  // True when a transpose was moved; the graph then has the result.
  bool run(Graph& graph) {
    bool changed = false;
    for (const auto& node : graph.nodes()) {
      const SiteScope scope(rewrite_.to(), node->site.name + "/moved", SiteScope::Path::kAbsolute);
      const Value value = node->outputs.size() == 1 ? moved(*node) : Value{};
      if (value)
        rewrite_.replace(*node, {value});
      else
        rewrite_.copy(*node);
      changed = changed || value;
    }
    if (changed) graph = rewrite_.finish();
    return changed;
  }

 private:
  static const Axes* perm_of(Value value) {
    return value.node->is<Transpose>() ? &value.node->op_as<Transpose>().perm : nullptr;
  }

  Value moved(const Node& node) {
    if (node.inputs.empty()) return {};
    const std::vector<Value> inputs = rewrite_.mapped_inputs(node);
    if (node.is<Transpose>()) return joined(inputs[0], node.op_as<Transpose>().perm);
    const Axes* perm = common_perm(node, inputs);
    if (perm == nullptr) return {};
    if (node.op->traits().elementwise) return below(node, node.op, inputs, *perm);
    if (node.is<ReduceSum>()) return reduced<ReduceSum>(node, inputs[0], *perm);
    if (node.is<ReduceMean>()) return reduced<ReduceMean>(node, inputs[0], *perm);
    if (node.is<ReduceMax>()) return reduced<ReduceMax>(node, inputs[0], *perm);
    if (node.is<Concat>()) {
      auto op = std::make_shared<Concat>();
      op->axis = (*perm)[at(node.op_as<Concat>().axis)];
      return below(node, op, inputs, *perm);
    }
    if (!node.is<Pad>() || grows(node)) return {};
    auto op = std::make_shared<Pad>(node.op_as<Pad>());
    for (Axes* axes : {&op->low, &op->high, &op->interior}) *axes = moved_down(*axes, *perm);
    return below(node, op, inputs, *perm);
  }

  // True for a pad behind which a transpose would move many more elements.
  static bool grows(const Node& pad) {
    return pad.outputs[0].elements() > 4 * pad.inputs[0].type().elements();
  }

  // Two transposes as one, or as none.
  static Value joined(Value input, const Axes& perm) {
    const Axes* inner = perm_of(input);
    if (inner == nullptr) return {};
    Axes both;
    for (const int64_t axis : perm) both.push_back((*inner)[at(axis)]);
    return transpose(input.node->inputs[0], both);
  }

  // The one permutation of all operands, of which at least one is read by the node alone; null
  // where there is none.
  const Axes* common_perm(const Node& node, const std::vector<Value>& inputs) const {
    const Axes* common = nullptr;
    for (size_t i = 0; i < inputs.size() && common == nullptr; ++i)
      if (readers_.is_read_once(node.inputs[i])) common = perm_of(inputs[i]);
    const bool fits = common != nullptr && std::all_of(inputs.begin(), inputs.end(), [&](Value x) {
                        const Axes* perm = perm_of(before_repeat(x));
                        return perm != nullptr ? *perm == *common : can_be_moved(x);
                      });
    return fits ? common : nullptr;
  }

  // The value of as many axes that is broadcast, else the value.
  static Value before_repeat(Value value) {
    const bool is_repeated =
        value.node->is<Broadcast>() && value.node->inputs[0].rank() == value.rank();
    return is_repeated ? value.node->inputs[0] : value;
  }

  // True for numbers, and for what is broadcast along all axes but one.
  static bool can_be_moved(Value value) {
    if (splat_of(value)) return true;
    if (!value.node->is<Broadcast>()) return false;
    const Shape& shape = value.node->inputs[0].shape();
    return std::count_if(shape.begin(), shape.end(), [](int64_t size) { return size != 1; }) <= 1;
  }

  // The operand whose transpose by `perm` the value is.
  Value before(Value value, const Axes& perm) {
    const Shape shape = moved_down(value.shape(), perm);
    if (const Value moved = before_repeat(value); perm_of(moved) != nullptr)
      return broadcast(moved.node->inputs[0], shape);
    if (splat_of(value)) {
      Constant op = value.node->op_as<Constant>();
      op.shape = shape;
      return {&rewrite_.to().add(std::make_shared<const Constant>(std::move(op)), {}), 0};
    }
    const Value repeated = value.node->inputs[0];
    Shape aligned = repeated.shape();
    aligned.insert(aligned.begin(), perm.size() - aligned.size(), 1);
    return broadcast(reshape(repeated, moved_down(aligned, perm)), shape);
  }

  Value below(const Node& node,
              std::shared_ptr<const Op> op,
              const std::vector<Value>& inputs,
              const Axes& perm) {
    const Axes kept = perm;
    std::vector<Value> operands;
    for (const Value& input : inputs) operands.push_back(before(input, kept));
    return transpose({&rewrite_.to().add(std::move(op), operands, node.site), 0}, kept);
  }

  template <typename Op>
  Value reduced(const Node& node, Value input, const Axes& perm) {
    auto op = std::make_shared<Op>(node.op_as<Op>());
    for (int64_t& axis : op->axes) axis = perm[at(axis)];
    std::sort(op->axes.begin(), op->axes.end());
    Axes kept;
    for (const int64_t axis : perm) {
      const bool is_gone = std::binary_search(op->axes.begin(), op->axes.end(), axis);
      if (op->keepdims || !is_gone) kept.push_back(axis);
    }
    // Axes that are left count anew.
    Axes sorted = kept;
    std::sort(sorted.begin(), sorted.end());
    for (int64_t& axis : kept)
      axis = std::lower_bound(sorted.begin(), sorted.end(), axis) - sorted.begin();
    const Value operand = input.node->inputs[0];
    return transpose({&rewrite_.to().add(std::move(op), {operand}, node.site), 0}, kept);
  }

  Readers readers_;
  Rewrite rewrite_;
};

}  // namespace

bool cancel_transposes(Graph& graph, PassContext& context) {
  bool changed = false;
  while (Mover(graph).run(graph)) {
    // A transpose that nobody needs any more must not move again.
    remove_dead(graph, context);
    changed = true;
  }
  return changed;
}

}  // namespace ridge
