// Makes one node of a 16-bit product and the loop that reads it, where the backend has a kernel for
// both: the product is then never written.
//
//   y = matmul(x, w) : bf16                       h, z = fused_matmul(x, w, bias)
//   h = fused(y, bias)   gelu(y + bias)     ->            gelu(y + bias), y + bias : bf16
//   ...                                           ...
//   dv = fused(dh, y, bias)                       dv = fused(dh, z)
//
// Where later loops read the product too, the node gives it to them in 16 bits: with the bias, if
// all of them add the same. Column sums, as of a bias's gradient, hinder no loop: they are taken
// from what it makes, in 16 bits, by a loop of their own.
//
//   s, dv = fused(dh, z)   dv's columns summed    ->    dv = fused(dh, z);  s = fused(dv)
#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "ridge/compile/pass.h"
#include "ridge/compile/passes/has_kernel.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/fused_matmul.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/graph/rewrite.h"
#include "ridge/graph/text.h"

namespace ridge {
namespace {

size_t id(const Node& node) { return static_cast<size_t>(node.id); }

// ---- bodies ----

// A value of a body that becomes a result, of that type: cast and reshaped where it is of another.
struct Wanted {
  const Node* value;
  TensorType type;
};

struct EditedBody {
  Graph body{"fused"};
  std::vector<size_t> inputs;  // numbers that they had
};

// Nodes that stand for others.
using Instead = std::map<const Node*, const Node*>;

// `from` with other results, and without what nobody needs then; input `first` comes first.
EditedBody edit(const Graph& from,
                const Instead& instead,
                const std::vector<Wanted>& results,
                std::optional<size_t> first) {
  const auto at = [&](const Node* node) -> const Node& {
    const auto found = instead.find(node);
    return found == instead.end() ? *node : *found->second;
  };
  std::vector<bool> live(from.nodes().size());
  for (const Wanted& wanted : results) live[id(at(wanted.value))] = true;
  for (size_t i = live.size(); i-- > 0;)
    if (live[i])
      for (const Value& value : from.nodes()[i]->inputs) live[id(at(value.node))] = true;
  EditedBody edited;
  std::vector<Value> values(live.size());
  for (const bool is_first : {true, false})
    for (const Node* node : from.inputs()) {
      const size_t number = input_number(*node);
      if (!live[id(*node)] || (number == first) != is_first) continue;
      values[id(*node)] =
          input(edited.body, fmt::format("{}", edited.inputs.size()), node->outputs[0]);
      edited.inputs.push_back(number);
    }
  for (const auto& node : from.nodes()) {
    if (!live[id(*node)] || node->is<Input>()) continue;
    std::vector<Value> operands;
    for (const Value& value : node->inputs) operands.push_back(values[id(at(value.node))]);
    values[id(*node)] = {&edited.body.add(node->op, std::move(operands), node->site), 0};
  }
  for (const Wanted& wanted : results) {
    const Node& node = at(wanted.value);
    const SiteScope scope(edited.body, node.site.name + "/kept", SiteScope::Path::kAbsolute);
    Value value = reshape(values[id(node)], wanted.type.shape);
    value = cast(value, wanted.type.dtype);
    edited.body.add_output(fmt::format("{}", edited.body.outputs().size()), value);
  }
  return edited;
}

// The first steps of a loop on an input: it is widened, and maybe a row is added to its rows.
struct Base {
  std::vector<const Node*> wide;  // in f32, of any shape
  std::vector<const Node*> sums;  // with the row; none: something else is done with it, too
  Value bias;                     // the row, a value outside of the loop
};

class BaseFinder {
 public:
  BaseFinder(const Node& loop, Value product)
      : loop_(loop), body_(read_body(loop.op_as<Fused>()).graph), product_(product) {}

  Base find() {
    std::set<const Node*> chain;
    for (const Node* node : body_.inputs())
      if (outer(*node) == product_) chain.insert(node);
    bool is_summed = true;
    for (const auto& node : body_.nodes())
      for (size_t i = 0; i < node->inputs.size(); ++i) {
        if (!chain.contains(node->inputs[i].node)) continue;
        if (node->is<Reshape>() || (node->is<Cast>() && node->outputs[0].dtype == DType::kF32)) {
          chain.insert(node.get());
          if (node->outputs[0].dtype == DType::kF32) base_.wide.push_back(node.get());
        } else if (!add_sum(*node, i)) {
          is_summed = false;
        }
      }
    for (const Output& output : body_.outputs())
      is_summed = is_summed && !chain.contains(output.value.node);
    if (!is_summed) base_.sums.clear();
    return std::move(base_);
  }

 private:
  Value outer(const Node& node) const { return loop_.inputs[input_number(node)]; }

  // Whether `node` adds a row to its operand `i`, and the same one as others before.
  bool add_sum(const Node& node, size_t i) {
    if (!node.is<Add>() || node.outputs[0].dtype != DType::kF32) return false;
    const Node& other = behind_reshapes(*node.inputs[1 - i].node);
    if (!other.is<Broadcast>() || !other.inputs[0].node->is<Input>()) return false;
    const Value row = outer(*other.inputs[0].node);
    const int64_t columns = product_.dim(-1);
    if (row.rank() == 0 || row.dim(-1) != columns || row.type().elements() != columns ||
        other.outputs[0].shape.back() != columns || (base_.bias && base_.bias != row))
      return false;
    base_.bias = row;
    base_.sums.push_back(&node);
    return true;
  }

  const Node& loop_;
  const Graph& body_;
  Value product_;
  Base base_;
};

// ---- column sums ----

// A result of a loop over rows that sums the columns of what another result is, once rounded.
struct ColumnSum {
  size_t result, summed;  // numbers of the loop's results
  const Node* reduction;
};

// All that makes a loop one over rows; nothing where there is more to it.
std::optional<std::vector<ColumnSum>> column_sums(const FusedBody& body) {
  std::vector<ColumnSum> sums;
  const auto& outputs = body.graph.outputs();
  for (const auto& node : body.graph.nodes()) {
    const LoopRole role = body.role(*node);
    if (role == LoopRole::kRow || role == LoopRole::kSpotted || role == LoopRole::kTotal)
      return std::nullopt;
    if (role != LoopRole::kColumns) continue;
    if (!node->is<ReduceSum>()) return std::nullopt;
    const Node& summed = behind_reshapes(*node->inputs[0].node);
    bool is_found = false;
    for (size_t result = 0; result < outputs.size(); ++result) {
      if (outputs[result].value.node != node.get()) continue;
      for (size_t i = 0; i < outputs.size() && !is_found; ++i)
        if (before_rounding(*outputs[i].value.node) == &summed) {
          sums.push_back({result, i, node.get()});
          is_found = true;
        }
    }
    if (!is_found) return std::nullopt;
  }
  return sums;
}

// The loop that sums the columns of `of`.
Value sum_columns(Value of, const ColumnSum& sum, const LoopDomain& domain) {
  Graph body("fused");
  const Value x = input(body, "0", of.type());
  const SiteScope scope(body, sum.reduction->site.name + "/wide", SiteScope::Path::kAbsolute);
  const Value wide = reshape(cast(x, DType::kF32), sum.reduction->inputs[0].shape());
  body.add_output("0", {&body.add(sum.reduction->op, {wide}, sum.reduction->site), 0});
  return {&fused(of.graph(), body, {of}, sum.reduction->site, domain), 0};
}

// ---- the pass ----

// A product and its loop, as they become one.
struct Joint {
  const Node *product = nullptr, *loop = nullptr;
  std::vector<const Node*> later;  // other loops that read the product
  EditedBody body;
  std::vector<int> results;     // by result of the loop: that of the node; -1: it is a sum
  std::vector<ColumnSum> sums;  // taken by loops of their own
  int kept = -1;                // the node's result that later loops read; -1: there are none
  bool keeps_sum = false;       // the bias is in it
};

Node& add_joint(Graph& graph,
                const Joint& joint,
                const std::vector<Value>& factors,
                const std::vector<Value>& others) {
  Fused loop;
  loop.body = print(joint.body.body);
  return fused_matmul(graph,
                      joint.product->op_as<MatMul>(),
                      loop,
                      factors[0],
                      factors[1],
                      others,
                      joint.product->site);
}

class ProductFuser {
 public:
  ProductFuser(Graph& graph, PassContext& context) : graph_(graph), context_(context) {}

  bool run() {
    bool changed = false;
    for (;;) {
      const std::vector<Joint> joints = find_joints();
      if (joints.empty()) return changed;
      graph_ = rewritten(joints);
      changed = true;
    }
  }

 private:
  // All that have no node in common; what shares one with a product before it waits for the next
  // round, whose loops may read something else.
  std::vector<Joint> find_joints() {
    std::vector<Joint> joints;
    std::set<const Node*> taken;
    const auto all_readers = find_readers();
    for (const auto& node : graph_.nodes()) {
      const auto& readers = all_readers[id(*node)];
      if (!node->is<MatMul>() || size_of(node->outputs[0].dtype) != 2 ||
          refused_.contains(node->site.name) || readers.empty())
        continue;
      if (std::none_of(readers.begin(), readers.end(), [&](const Node* reader) {
            return taken.contains(reader);
          })) {
        std::optional<Joint> joint = plan(*node, readers);
        if (!joint || !is_run_as_one(*joint)) {
          refused_.insert(node->site.name);
          continue;
        }
        joints.push_back(std::move(*joint));
      }
      taken.insert(readers.begin(), readers.end());
    }
    return joints;
  }

  // By node; none where the graph gives it as a result.
  std::vector<std::vector<const Node*>> find_readers() const {
    std::vector<std::vector<const Node*>> readers(graph_.nodes().size());
    for (const auto& node : graph_.nodes())
      for (const Value& value : node->inputs) {
        auto& all = readers[id(*value.node)];
        if (all.empty() || all.back() != node.get()) all.push_back(node.get());
      }
    for (const Output& output : graph_.outputs()) readers[id(*output.value.node)].clear();
    return readers;
  }

  std::optional<Joint> plan(const Node& product, const std::vector<const Node*>& readers) const {
    for (const Node* reader : readers)
      if (!reader->is<Fused>()) return std::nullopt;
    Joint joint;
    joint.product = &product;
    joint.loop = readers.front();
    joint.later.assign(readers.begin() + 1, readers.end());
    const FusedBody& body = read_body(joint.loop->op_as<Fused>());
    const auto sums = column_sums(body);
    if (!sums) return std::nullopt;
    joint.sums = *sums;
    std::vector<Wanted> results;
    for (size_t i = 0; i < body.graph.outputs().size(); ++i) {
      const Value value = body.graph.outputs()[i].value;
      const bool is_sum = std::any_of(
          sums->begin(), sums->end(), [&](const ColumnSum& sum) { return sum.result == i; });
      joint.results.push_back(is_sum ? -1 : static_cast<int>(results.size()));
      if (!is_sum) results.push_back({value.node, value.type()});
    }
    if (!joint.later.empty() && !keep(joint, results)) return std::nullopt;
    const auto& inputs = joint.loop->inputs;
    const Value read{const_cast<Node*>(&product), 0};
    if (std::count(inputs.begin(), inputs.end(), read) != 1) return std::nullopt;
    const auto number = std::find(inputs.begin(), inputs.end(), read) - inputs.begin();
    joint.body = edit(body.graph, {}, results, static_cast<size_t>(number));
    return joint;
  }

  // Adds what later loops read to the results.
  static bool keep(Joint& joint, std::vector<Wanted>& results) {
    const Value product{const_cast<Node*>(joint.product), 0};
    const Base own = BaseFinder(*joint.loop, product).find();
    joint.keeps_sum = !own.sums.empty();
    for (const Node* reader : joint.later) {
      const Base other = BaseFinder(*reader, product).find();
      joint.keeps_sum = joint.keeps_sum && !other.sums.empty() && other.bias == own.bias;
    }
    if (own.wide.empty()) return false;
    joint.kept = static_cast<int>(results.size());
    results.push_back(
        {joint.keeps_sum ? own.sums.front() : own.wide.front(), joint.product->outputs[0]});
    return true;
  }

  bool is_run_as_one(const Joint& joint) const {
    Graph probe("probe");
    size_t number = 0;
    const auto open = [&](Value value) {
      return input(probe, fmt::format("{}", number++), value.type());
    };
    const std::vector<Value> factors{open(joint.product->inputs[0]),
                                     open(joint.product->inputs[1])};
    std::vector<Value> others;
    for (size_t i = 1; i < joint.body.inputs.size(); ++i)
      others.push_back(open(joint.loop->inputs[joint.body.inputs[i]]));
    return has_kernel(add_joint(probe, joint, factors, others), context_.backend);
  }

  Graph rewritten(const std::vector<Joint>& joints) const {
    std::map<const Node*, const Joint*> of;  // by node; only those that change
    for (const Joint& joint : joints) {
      of[joint.product] = of[joint.loop] = &joint;
      if (joint.keeps_sum)
        for (const Node* reader : joint.later) of[reader] = &joint;
    }
    Rewrite rewrite(graph_);
    for (const auto& node : graph_.nodes()) {
      const auto found = of.find(node.get());
      if (found == of.end())
        rewrite.copy(*node);
      else if (node.get() == found->second->loop)
        add(rewrite, *found->second);
      else if (node.get() != found->second->product)  // its place is the loop's
        add_later(rewrite, *node, *found->second);
    }
    return rewrite.finish();
  }

  static void add(Rewrite& rewrite, const Joint& joint) {
    std::vector<Value> others;
    for (size_t i = 1; i < joint.body.inputs.size(); ++i)
      others.push_back(rewrite.mapped(joint.loop->inputs[joint.body.inputs[i]]));
    Node& node = add_joint(rewrite.to(), joint, rewrite.mapped_inputs(*joint.product), others);
    std::vector<Value> results;
    for (const int result : joint.results)
      results.push_back(result < 0 ? Value{} : Value{&node, result});
    const LoopDomain domain = read_body(joint.loop->op_as<Fused>()).domain;
    for (const ColumnSum& sum : joint.sums)
      results[sum.result] = sum_columns(results[sum.summed], sum, domain);
    rewrite.replace(*joint.loop, std::move(results));
    if (joint.kept >= 0) rewrite.replace(*joint.product, {{&node, joint.kept}});
  }

  // A later loop reads the sum where it read the product, and adds nothing.
  static void add_later(Rewrite& rewrite, const Node& node, const Joint& joint) {
    const auto& op = node.op_as<Fused>();
    const FusedBody& body = read_body(op);
    const Base base = BaseFinder(node, {const_cast<Node*>(joint.product), 0}).find();
    Instead instead;
    for (const Node* sum : base.sums)
      instead[sum] =
          sum->inputs[behind_reshapes(*sum->inputs[0].node).is<Broadcast>() ? 1 : 0].node;
    std::vector<Wanted> results;
    for (const Output& output : body.graph.outputs())
      results.push_back({output.value.node, output.value.type()});
    const EditedBody edited = edit(body.graph, instead, results, std::nullopt);
    std::vector<Value> inputs;
    for (const size_t i : edited.inputs) inputs.push_back(rewrite.mapped(node.inputs[i]));
    const LoopDomain domain = op.rows == 0 ? LoopDomain{} : body.domain;
    Node& made = fused(rewrite.to(), edited.body, std::move(inputs), node.site, domain);
    std::vector<Value> values;
    for (size_t i = 0; i < made.outputs.size(); ++i) values.push_back({&made, static_cast<int>(i)});
    rewrite.replace(node, std::move(values));
  }

  Graph& graph_;
  PassContext& context_;
  std::set<std::string> refused_;  // sites of products
};

}  // namespace

bool fuse_products(Graph& graph, PassContext& context) {
  return ProductFuser(graph, context).run();
}

}  // namespace ridge
