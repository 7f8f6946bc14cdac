// Rematerializes casts: each loop computes f32 values for itself from what lies in memory, in 16
// bits mostly, where it reads no more bytes for that (broadcast values are not counted). Without
// the pass the first loop that needs such a value writes it for the others, in f32, and values
// that backward reads of forward would lose their casts to 16 bits.
//
//   v = matmul(x, w) : bf16                 v = matmul(x, w) : bf16
//   z = add(cast(v), bias)                  z = add(cast(v), bias)
//   h = cast(gelu(z)) : bf16          ->    h = cast(gelu(z)) : bf16
//   ...                                     ...
//   dv = mul(dh, slope(z))                  z' = add(cast(v), bias)
//                                           dv = mul(dh, slope(z'))
//
// Without 16 bits, loops recompute only what a few operations make of bytes, as the numbers of
// quantized models are made.
#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "ridge/compile/pass.h"
#include "ridge/compile/passes/loop_groups.h"
#include "ridge/graph/ops/fused.h"
#include "ridge/graph/ops/random.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/graph/rewrite.h"

namespace ridge {
namespace {

// Beyond that a loop has better things to do.
constexpr size_t kMostOps = 12;

using Place = std::pair<int, int>;  // a value: node and result

// The values that a value is recomputed from, and the ops that do it.
struct Recomputation {
  std::map<Place, TensorType> reads;
  std::set<int> ops;

  // Whether what it reads that has so many elements are bytes.
  bool reads_bytes(int64_t elements) const {
    const int64_t bytes = large(elements);
    return bytes > 0 && std::all_of(reads.begin(), reads.end(), [&](const auto& read) {
             return read.second.elements() < elements || size_of(read.second.dtype) == 1;
           });
  }
  // Bytes of what it reads that has so many elements.
  int64_t large(int64_t elements) const {
    int64_t bytes = 0;
    for (const auto& [place, type] : reads)
      if (type.elements() >= elements) bytes += type.bytes();
    return bytes;
  }
};

class Rematerializer {
 public:
  // `of_bytes_only`: no value is recomputed but from bytes, and without functions.
  Rematerializer(const Graph& graph, Backend& backend, bool of_bytes_only)
      : graph_(graph),
        of_bytes_only_(of_bytes_only),
        groups_(graph, backend),
        rewrite_(graph),
        recomputations_(graph.nodes().size()) {
    for (const auto& node : graph.nodes()) find_recomputation(*node);
  }

  bool run() {
    for (const auto& node : graph_.nodes()) visit(*node);
    return !made_.empty();
  }
  Graph finish() { return rewrite_.finish(); }

 private:
  const Recomputation* recomputation(const Node& node) const {
    const auto& known = recomputations_[static_cast<size_t>(node.id)];
    return known ? &*known : nullptr;
  }

  // A view stands for what is behind it.
  static bool is_plain_view(const Node& node) { return node.is<Broadcast>() || node.is<Reshape>(); }

  static Value behind_views(Value value) {
    while (is_loop_view(*value.node) && !value.node->inputs.empty()) value = value.node->inputs[0];
    return value;
  }

  void find_recomputation(const Node& node) {
    const bool is_view = is_plain_view(node);
    const DType dtype = node.outputs[0].dtype;
    const bool is_op = is_fusible(node) && !node.is<Dropout>() &&
                       groups_.group(groups_.group_of(node)).is_loop &&
                       (of_bytes_only_ ? is_step_from_bytes(node) : dtype == DType::kF32);
    if (!is_view && !is_op) return;
    Recomputation made;
    for (const Value& input : node.inputs) {
      if (const Recomputation* from = recomputation(*input.node)) {
        made.reads.insert(from->reads.begin(), from->reads.end());
        made.ops.insert(from->ops.begin(), from->ops.end());
      } else {
        const Value source = behind_views(input);
        if (!source.node->is<Constant>())
          made.reads[{source.node->id, source.index}] = source.type();
      }
    }
    if (is_op) made.ops.insert(node.id);
    if (made.ops.empty() || made.ops.size() > kMostOps) return;
    const int64_t elements = node.outputs[0].elements();
    if (is_op && made.large(elements) > node.outputs[0].bytes()) return;
    if (is_op && of_bytes_only_ && !made.reads_bytes(elements)) return;
    recomputations_[static_cast<size_t>(node.id)] = std::move(made);
  }

  static bool is_step_from_bytes(const Node& node) {
    const DType dtype = node.outputs[0].dtype;
    return (dtype == DType::kF32 || dtype == DType::kI32) &&
           node.op->traits().op_class != OpClass::kTranscendental;
  }

  void visit(const Node& node) {
    const int index = groups_.group_of(node);
    const LoopGroup& group = groups_.group(index);
    if (node.is<Input>() || is_loop_view(node) || !group.is_loop) {
      rewrite_.copy(node);
      return;
    }
    std::vector<Value> inputs;
    for (const Value& input : node.inputs) inputs.push_back(within(input, group, index));
    Node& copy = rewrite_.to().add(node.op, std::move(inputs), node.site);
    rewrite_.replace(node, {{&copy, 0}});
  }

  // The value as nodes of the group read it.
  Value within(Value value, const LoopGroup& group, int index) {
    const Node& node = *value.node;
    // A value of a row costs less to read than to recompute.
    if (recomputation(node) == nullptr || groups_.is_inside(value, group) ||
        value.type().elements() != group.domain.elements)
      return rewrite_.mapped(value);
    return recompute(node, group, index);
  }

  Value recompute(const Node& node, const LoopGroup& group, int index) {
    Value& known = made_[{index, node.id}];
    if (known.node != nullptr) return known;
    std::vector<Value> inputs;
    for (const Value& input : node.inputs) inputs.push_back(within(input, group, index));
    known = {&rewrite_.to().add(node.op, std::move(inputs), node.site), 0};
    return known;
  }

  const Graph& graph_;
  bool of_bytes_only_;
  LoopGroups groups_;
  Rewrite rewrite_;
  std::vector<std::optional<Recomputation>> recomputations_;  // by node; none: it is read as it is
  std::map<std::pair<int, int>, Value> made_;                 // by group and node
};

bool has_bytes(const Graph& graph) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(), [](const auto& node) {
    return std::any_of(node->outputs.begin(), node->outputs.end(), [](const TensorType& type) {
      return type.dtype == DType::kI8 || type.dtype == DType::kU8;
    });
  });
}

}  // namespace

bool rematerialize_casts(Graph& graph, PassContext& context) {
  const bool has_16_bits =
      context.options.precision != DType::kF32 && context.backend.stores_16_bits();
  if (!has_16_bits && !has_bytes(graph)) return false;
  Rematerializer rematerializer(graph, context.backend, !has_16_bits);
  const bool changed = rematerializer.run();
  if (changed) graph = rematerializer.finish();
  return changed;
}

}  // namespace ridge
