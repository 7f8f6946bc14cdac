// Gives a batch norm the activation that alone reads its result:
//
//   y, mean, var = batch_norm(x, g, b)
//   a = relu(y)                            ->   a, mean, var = batch_norm(x, g, b; relu)
//
//   a = min(max(y, 0), 6)                  ->   a, mean, var = batch_norm(x, g, b; relu6)
//
// A large image is written once, and not read again. A zero may change its sign.
#include <map>
#include <optional>

#include "ridge/compile/passes/pattern.h"
#include "ridge/graph/ops/activation.h"
#include "ridge/graph/ops/batch_norm.h"
#include "ridge/graph/ops/elementwise.h"

namespace ridge {
namespace {

struct Activated {
  const Node* last;  ///< Its result is the activation's.
  std::string activation;
};

// The only reader of each value, by node; null where there are several, or an output has it.
class OnlyReaders {
 public:
  explicit OnlyReaders(const Graph& graph) {
    for (const auto& node : graph.nodes())
      for (const Value& input : node->inputs) note(input, node.get());
    for (const Output& output : graph.outputs()) note(output.value, nullptr);
  }
  const Node* of(const Value& value) const {
    const auto at = readers_.find({value.node, value.index});
    return at == readers_.end() ? nullptr : at->second;
  }

 private:
  void note(const Value& value, const Node* reader) {
    const auto [at, is_first] = readers_.try_emplace({value.node, value.index}, reader);
    if (!is_first && at->second != reader) at->second = nullptr;
  }

  std::map<std::pair<const Node*, int>, const Node*> readers_;
};

// True for an op of `value` and that number, in either order.
template <typename Op>
bool is_with_number(const Node* node, const Value& value, double number) {
  if (node == nullptr || !node->is<Op>()) return false;
  const size_t other = node->inputs[0] == value ? 1 : 0;
  return node->inputs[1 - other] == value && number_of(node->inputs[other]) == number;
}

bool is_relu(const Node* node, const Value& value) {
  return is_with_number<Maximum>(node, value, 0.0) || (node != nullptr && node->is<Relu>());
}

// The two steps of relu6 come in either order.
std::optional<Activated> activation_of(const Node& norm, const OnlyReaders& readers) {
  if (norm.op_as<BatchNorm>().activation != "none") return std::nullopt;
  const Value result{const_cast<Node*>(&norm), 0};
  const Node* const first = readers.of(result);
  if (first == nullptr) return std::nullopt;
  const Value between{const_cast<Node*>(first), 0};
  const Node* const second = readers.of(between);
  const bool takes_positive = is_relu(first, result);
  if (takes_positive ? is_with_number<Minimum>(second, between, 6.0)
                     : is_with_number<Minimum>(first, result, 6.0) && is_relu(second, between))
    return Activated{second, "relu6"};
  return takes_positive ? std::optional(Activated{first, "relu"}) : std::nullopt;
}

}  // namespace

bool fuse_norm_activations(Graph& graph, PassContext& context) {
  const OnlyReaders readers(graph);
  std::map<const Node*, Value> last;  // the activations' results, by node
  Rewrite rewrite(graph);
  for (const auto& node : graph.nodes()) {
    if (const auto at = last.find(node.get()); at != last.end()) {
      rewrite.replace(*node, {at->second});
      continue;
    }
    const auto found = node->is<BatchNorm>() ? activation_of(*node, readers) : std::nullopt;
    if (!found) {
      rewrite.copy(*node);
      continue;
    }
    auto op = std::make_shared<BatchNorm>(node->op_as<BatchNorm>());
    op->activation = found->activation;
    Node& fused = rewrite.to().add(std::move(op), rewrite.mapped_inputs(*node), node->site);
    rewrite.replace(*node, {{&fused, 0}, {&fused, 1}, {&fused, 2}});
    last[found->last] = {&fused, 0};
  }
  if (last.empty()) return false;
  graph = rewrite.finish();
  remove_dead(graph, context);
  return true;
}

}  // namespace ridge
