// Gives the logits of a loss rows whose length is a multiple of what the device asks for. A row of
// 50257 numbers of 16 bits begins at an odd address: no product of it can be read or written by 16
// bytes, and there are three, of the logits, of what goes into the head and of its weight.
//
//   l  = matmul(x, w)                      l  = matmul(x, pad(w)) : rows of C' > C columns
//   m  = reduce_max(l)                     k  = mask_columns(l, C, -inf)
//   p  = pick(l, y)                 ->     m  = reduce_max(k)
//   g  = ..., the gradient of l            p  = pick[limit=C](l, y)
//   dx = matmul(g, w)                      g  = ..., of k: 0 from column C on
//   dw = matmul(x, g)                      dx = matmul(g, pad(w))
//                                          dw = slice(matmul(x, g), before C)
//
// What lies in the padding of l is never used. pad(w) is a copy of the 16 bits that w is cast to in
// each step anyway; in f32 without TF32 no product goes by tensor cores, and nothing is padded.
// A head with a bias, or with a smoothed loss, is left as it is. Parameters, losses and results
// keep their shapes.
#include "ridge/compile/passes/pad_head.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>

#include "ridge/compile/pass.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/fused.h"
#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/graph/rewrite.h"

namespace ridge {
namespace {

// Padding to a multiple of 64 adds less than a quarter to the work of three products of so many
// columns, and what is not aligned takes about twice as long. Of fewer columns the products are
// too small a part of a step to pay for the copy of the weight: with 65536 rows of width 768 one
// of 256 columns takes some 40 us of an H200.
constexpr int64_t kFewestColumns = 256;

constexpr std::string_view kSuffix = "/pad";

// What is known of the padding of a value.
enum class Fill : uint8_t {
  kUnused,   // as the product left it
  kUnknown,  // computed from what is in other paddings
  kRow,      // what the whole row has
  kZero,
  kLowest,  // minus infinity
};

struct Padded {
  Value value;
  Fill fill = Fill::kUnknown;
};

bool is_last_axis(const std::vector<int64_t>& axes, Value x) {
  return axes.size() == 1 && axes.front() == x.rank() - 1;
}

// Of an elementwise op; kUnknown is always true. A row that is not finite is so in its padding,
// too.
Fill fill_of(const Node& node, const std::vector<Fill>& inputs) {
  const auto is = [&](size_t i, Fill fill) { return i < inputs.size() && inputs[i] == fill; };
  const auto are = [&](Fill a, Fill b) { return is(0, a) && is(1, b); };
  if (node.is<Cast>()) return inputs[0];
  if (node.is<Exp>() && is(0, Fill::kLowest)) return Fill::kZero;
  if (node.is<Neg>() && is(0, Fill::kZero)) return Fill::kZero;
  if (node.is<Sub>() && are(Fill::kLowest, Fill::kRow)) return Fill::kLowest;
  if ((node.is<Add>() || node.is<Sub>()) && are(Fill::kZero, Fill::kZero)) return Fill::kZero;
  if ((node.is<Mul>() || node.is<Div>()) && are(Fill::kZero, Fill::kRow)) return Fill::kZero;
  if (node.is<Mul>() && are(Fill::kRow, Fill::kZero)) return Fill::kZero;
  if (node.is<Where>() && is(1, Fill::kZero) && is(2, Fill::kZero)) return Fill::kZero;
  return Fill::kUnknown;
}

// Pads one head, if all that is made of its logits has a rule.
class HeadPadder {
 public:
  HeadPadder(const Graph& graph, const Node& head, int64_t columns, int64_t stride)
      : graph_(graph), head_(head), columns_(columns), stride_(stride), rewrite_(graph) {}

  std::optional<Graph> run() {
    for (const auto& node : graph_.nodes()) {
      if (node.get() == &head_) {
        make_head();
      } else if (!reads_padded(*node)) {
        rewrite_.copy(*node);
      } else if (!pad(*node)) {
        return std::nullopt;
      }
    }
    for (const Output& output : graph_.outputs())
      if (!rewrite_.has(*output.value.node)) return std::nullopt;
    return rewrite_.finish();
  }

 private:
  bool is_padded(Value value) const { return padded_.contains(value.node->id); }
  bool reads_padded(const Node& node) const {
    return std::any_of(
        node.inputs.begin(), node.inputs.end(), [&](Value v) { return is_padded(v); });
  }
  std::string pad_site() const { return head_.site.name + std::string(kSuffix); }

  Shape padded(Shape shape) const {
    shape.back() = stride_;
    return shape;
  }

  // `value`, of the new graph, with zeros behind `axis`.
  Value with_zeros(Value value, int64_t axis) {
    const SiteScope scope(rewrite_.to(), pad_site(), SiteScope::Path::kAbsolute);
    std::vector<int64_t> low(value.shape().size()), high = low;
    high[static_cast<size_t>(axis)] = stride_ - columns_;
    return ridge::pad(value, low, high);
  }

  void make_head() {
    std::vector<Value> inputs = rewrite_.mapped_inputs(head_);
    inputs[1] = with_zeros(inputs[1], head_.op_as<MatMul>().transpose_b ? 0 : 1);
    Node& made = rewrite_.to().add(head_.op, std::move(inputs), head_.site);
    padded_[head_.id] = {{&made, 0}, Fill::kUnused};
  }

  // With `fill` in the padding.
  Value masked(Value old, Fill fill) {
    const Padded known = padded_.at(old.node->id);
    if (known.fill == fill) return known.value;
    const auto [at, is_new] = masked_.try_emplace({old.node->id, fill});
    if (is_new) {
      const SiteScope scope(rewrite_.to(), pad_site(), SiteScope::Path::kAbsolute);
      const double value = fill == Fill::kLowest ? -std::numeric_limits<double>::infinity() : 0.0;
      at->second = mask_columns(known.value, columns_, value);
    }
    return at->second;
  }

  // What an elementwise op reads: an operand that is not made of the logits is made once more, with
  // longer rows. Without a value where it cannot be.
  Padded operand(Value old) {
    if (is_padded(old)) {
      const Padded& known = padded_.at(old.node->id);
      if (known.fill == Fill::kUnused) return {masked(old, Fill::kLowest), Fill::kLowest};
      return known;
    }
    if (old.rank() == 0 || old.dim(-1) != columns_) return {};
    const SiteScope scope(rewrite_.to(), pad_site(), SiteScope::Path::kAbsolute);
    const Node& node = *old.node;
    const auto fill_of_splat = [](Value x) {
      return splat_of(x) == 0.0 ? Fill::kZero : Fill::kRow;
    };
    if (node.is<Constant>() && node.op_as<Constant>().is_splat()) {
      Constant op = node.op_as<Constant>();
      op.shape = padded(op.shape);
      return {made_again(std::move(op), {}), fill_of_splat(old)};
    }
    if (node.is<OneHot>()) {
      OneHot op = node.op_as<OneHot>();
      op.depth = stride_;  // an index behind the columns is refused by what picks with it
      return {made_again(std::move(op), rewrite_.mapped_inputs(node)), Fill::kZero};
    }
    if (node.is<Broadcast>()) {
      const Value from = node.inputs[0];
      if (from.rank() != 0 && from.dim(-1) != 1) return {};
      Broadcast op = node.op_as<Broadcast>();
      op.shape = padded(op.shape);
      return {made_again(std::move(op), {rewrite_.mapped(from)}), fill_of_splat(from)};
    }
    if (node.is<Reshape>()) {
      const Padded from = operand(node.inputs[0]);
      if (!from.value) return {};
      return {reshape(from.value, padded(old.shape())), from.fill};
    }
    return {};
  }

  template <typename T>
  Value made_again(T op, std::vector<Value> inputs) {
    return {&rewrite_.to().add(std::make_shared<const T>(std::move(op)), std::move(inputs)), 0};
  }

  // In the place of the node.
  template <typename T>
  Value again(T op, const Node& node, std::vector<Value> inputs) {
    return {
        &rewrite_.to().add(std::make_shared<const T>(std::move(op)), std::move(inputs), node.site),
        0};
  }

  // Makes the node from operands with longer rows; false where there is no rule for it.
  bool pad(const Node& node) {
    if (node.is<MatMul>()) return pad_product(node);
    if (node.is<Pick>()) return pad_pick(node);
    if (node.is<ArgMax>()) return pad_argmax(node);
    if (node.is<ReduceMax>()) return reduce<ReduceMax>(node, Fill::kLowest);
    if (node.is<ReduceSum>()) return reduce<ReduceSum>(node, Fill::kZero);
    if (node.is<Reshape>()) return pad_reshape(node);
    if (node.is<Cast>()) {
      const Padded from = padded_.at(node.inputs[0].node->id);
      padded_[node.id] = {again(Cast(node.op_as<Cast>()), node, {from.value}), from.fill};
      return true;
    }
    return node.op->traits().elementwise && node.outputs.size() == 1 && pad_elementwise(node);
  }

  bool pad_elementwise(const Node& node) {
    std::vector<Value> inputs;
    std::vector<Fill> fills;
    for (const Value& input : node.inputs) {
      const Padded made = operand(input);
      if (!made.value) return false;
      inputs.push_back(made.value);
      fills.push_back(made.fill);
    }
    Node& made = rewrite_.to().add(node.op, std::move(inputs), node.site);
    padded_[node.id] = {{&made, 0}, fill_of(node, fills)};
    return true;
  }

  bool pad_reshape(const Node& node) {
    const Padded from = padded_.at(node.inputs[0].node->id);
    if (node.outputs[0].rank() == 0 || node.outputs[0].shape.back() != columns_) return false;
    Reshape op = node.op_as<Reshape>();
    op.shape = padded(op.shape);
    padded_[node.id] = {again(std::move(op), node, {from.value}), from.fill};
    return true;
  }

  template <typename T>
  bool reduce(const Node& node, Fill fill) {
    if (!is_last_axis(node.op_as<T>().axes, node.inputs[0])) return false;
    rewrite_.replace(node,
                     {{&rewrite_.to().add(node.op, {masked(node.inputs[0], fill)}, node.site), 0}});
    return true;
  }

  bool pad_pick(const Node& node) {
    if (!is_padded(node.inputs[0]) || is_padded(node.inputs[1])) return false;
    Pick op = node.op_as<Pick>();
    op.limit = op.columns_of(columns_);
    const Value from = padded_.at(node.inputs[0].node->id).value;
    rewrite_.replace(node, {again(std::move(op), node, {from, rewrite_.mapped(node.inputs[1])})});
    return true;
  }

  bool pad_argmax(const Node& node) {
    ArgMax op = node.op_as<ArgMax>();
    if (op.axis != node.inputs[0].rank() - 1) return false;
    op.limit = op.looked_at(columns_);
    const Value from = padded_.at(node.inputs[0].node->id).value;
    rewrite_.replace(node, {again(std::move(op), node, {from})});
    return true;
  }

  // A product that sums over the columns reads zeros behind them on both sides; one that keeps them
  // has too many, and those are cut off.
  bool pad_product(const Node& node) {
    const auto& op = node.op_as<MatMul>();
    const size_t side = is_padded(node.inputs[0]) ? 0 : 1;
    const Value other = node.inputs[1 - side];
    if (node.outputs[0].rank() != 2 || is_padded(other)) return false;
    const bool sums = side == 0 ? !op.transpose_a : op.transpose_b;
    std::vector<Value> inputs(2);
    inputs[side] = sums ? masked(node.inputs[side], Fill::kZero)
                        : padded_.at(node.inputs[side].node->id).value;
    inputs[1 - side] = rewrite_.mapped(other);
    if (sums) {
      const bool sums_first = side == 0 ? !op.transpose_b : op.transpose_a;
      inputs[1 - side] = with_zeros(inputs[1 - side], sums_first ? 0 : 1);
    }
    Value made{&rewrite_.to().add(node.op, std::move(inputs), node.site), 0};
    if (!sums) {
      const SiteScope scope(rewrite_.to(), pad_site(), SiteScope::Path::kAbsolute);
      made = slice(made, static_cast<int64_t>(side), 0, columns_);
    }
    rewrite_.replace(node, {made});
    return true;
  }

  const Graph& graph_;
  const Node& head_;
  int64_t columns_, stride_;
  Rewrite rewrite_;
  std::map<int, Padded> padded_;                  // by node of the old graph
  std::map<std::pair<int, Fill>, Value> masked_;  // the same, made to order
};

// The product whose result a loss picks from.
const Node* head_of(const Node& pick) {
  const Node* at = pick.inputs[0].node;
  while (at->is<Cast>() || at->is<Reshape>()) at = at->inputs[0].node;
  return at->is<MatMul>() ? at : nullptr;
}

bool goes_by_tensor_cores(const Node& product) {
  const DType dtype = product.inputs[0].dtype();
  return dtype == DType::kBF16 || dtype == DType::kF16 || product.op_as<MatMul>().tf32;
}

}  // namespace

bool pad_head(Graph& graph, PassContext& context) {
  const int64_t multiple = context.backend.column_multiple();
  if (multiple <= 1) return false;
  std::set<std::string> refused;
  bool changed = false;
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = *graph.nodes()[i];
    const Node* const head = node.is<Pick>() ? head_of(node) : nullptr;
    if (head == nullptr || head->outputs[0].rank() != 2 || !goes_by_tensor_cores(*head)) continue;
    const int64_t rows = head->outputs[0].shape[0], columns = head->outputs[0].shape[1];
    const int64_t stride = (columns + multiple - 1) / multiple * multiple;
    const bool is_loop = rows >= 2 && stride <= kMostLoopColumns;
    if (columns < kFewestColumns || stride == columns || !is_loop) continue;
    if (refused.contains(head->site.name)) continue;
    std::optional<Graph> padded = HeadPadder(graph, *head, columns, stride).run();
    if (!padded) {
      refused.insert(head->site.name);
      continue;
    }
    graph = std::move(*padded);
    changed = true;
    i = 0;
  }
  return changed;
}

std::vector<HeadPadding> head_paddings(const Graph& graph) {
  std::vector<HeadPadding> found;
  std::set<std::string> seen;
  const auto look_at = [&](const Node& node) {
    if (!node.is<MaskColumns>()) return;
    const std::string site = node.site.name.substr(0, node.site.name.rfind(kSuffix));
    if (!seen.insert(site).second) return;
    const TensorType& type = node.outputs[0];
    const int64_t stride = type.shape.back();
    found.push_back({site, type.elements() / stride, node.op_as<MaskColumns>().limit, stride});
  };
  for (const auto& node : graph.nodes()) {
    look_at(*node);
    if (node->is<Fused>())
      for (const auto& inner : read_body(node->op_as<Fused>()).graph.nodes()) look_at(*inner);
  }
  return found;
}

}  // namespace ridge
