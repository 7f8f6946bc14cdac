// Computes a loss and its gradient in parts of the rows (targets), one part after the other: the
// logits of a large vocabulary, most of what a language model holds at once, are there for one part
// at a time.
//
//   l  = matmul(x, w)                       x1 = slice(x, first rows)
//   e  = cross_entropy(l, y)                l1 = matmul(x1, w)
//   g  = ..., the gradient of l      ->     e1 = cross_entropy(l1, slice(y))
//   dx = matmul(g, w)                       g1, dx1, dw1 as before, from these rows
//   dw = matmul(g, x)                       x2 = slice(barrier(x, after e1, dx1, dw1), next rows)
//                                           ...
//                                           e = concat(e1, e2); dx = concat(dx1, dx2)
//                                           dw = add(dw1, dw2)
//
// Each loss and its row of dx are computed as before; dw is summed in another order.
#include <algorithm>
#include <utility>

#include "ridge/compile/pass.h"
#include "ridge/compile/passes/loss_region.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/graph/rewrite.h"

namespace ridge {
namespace {

class LossChunker {
 public:
  LossChunker(const Graph& graph, const LossRegion& region, int64_t parts)
      : graph_(graph),
        region_(region),
        parts_(std::min(parts, region.rows)),
        rewrite_(graph),
        live_(live_nodes(graph)) {
    for (const auto& node : graph.nodes())
      if (live_[id(*node)] && !region.contains(*node))
        for (const Value& input : node->inputs) note_result(input);
    for (const Output& output : graph.outputs()) note_result(output.value);
  }

  Graph run() {
    bool is_made = false;
    for (const auto& node : graph_.nodes()) {
      if (!region_.contains(*node))
        copy(*node);
      else if (!std::exchange(is_made, true))
        make_parts();
    }
    for (const Output& output : graph_.outputs()) copy(*output.value.node);
    return rewrite_.finish();
  }

 private:
  using Key = std::pair<int, int>;  ///< Node id and index.
  /// Results of the region that others read: of each part, or their sum so far.
  struct Result {
    Value value;
    std::vector<Value> made = {};
  };
  struct Part {
    int64_t index = 0, begin = 0, end = 0;
    std::map<Key, Value> values = {};
  };

  static size_t id(const Node& node) { return static_cast<size_t>(node.id); }
  static Key key(Value value) { return {value.node->id, value.index}; }

  // A value that is the same for each row is recomputed for readers outside the region, so it is no
  // result.
  void note_result(Value value) {
    if (region_.contains(*value.node) && !flow_of(value).is_none())
      results_.try_emplace(key(value), Result{value});
  }

  // With what it reads, where that was not copied yet.
  void copy(const Node& node) {
    if (rewrite_.has(node) || !(live_[id(node)] || node.is<Input>())) return;
    for (const Value& input : node.inputs) copy(*input.node);
    rewrite_.copy(node);
  }

  const BatchFlow& flow_of(Value value) const {
    return region_.members.at(value.node->id).flows.at(static_cast<size_t>(value.index));
  }

  // The operands of the region come first: they may stand behind the region's first node.
  void make_parts() {
    for (const auto& [node, member] : region_.members)
      for (const Value& input : graph_.nodes()[static_cast<size_t>(node)]->inputs)
        if (!region_.contains(*input.node)) copy(*input.node);
    for (Part part; part.index < parts_; part = {part.index + 1, part.end, 0}) {
      const int64_t rows = region_.rows / parts_ + (part.index < region_.rows % parts_ ? 1 : 0);
      part.end = part.begin + rows;
      for (const auto& [node, member] : region_.members)
        make_node(*graph_.nodes()[static_cast<size_t>(node)], member, part);
      for (auto& [at, result] : results_) add_result(result, part);
      before_ = part;
    }
    for (auto& [at, result] : results_) finish(result);
  }

  SiteScope scope_of(const Node& node, const Part& part) {
    return {rewrite_.to(),
            fmt::format("{}/part.{}", node.site.name, part.index),
            SiteScope::Path::kAbsolute};
  }

  void make_node(const Node& node, const LossRegion::Member& member, Part& part) {
    const SiteScope scope = scope_of(node, part);
    std::vector<Value> inputs;
    bool reads_parts = false;
    for (const Value& input : node.inputs) reads_parts |= region_.contains(*input.node);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const Value& input = node.inputs[i];
      if (region_.contains(*input.node))
        inputs.push_back(part.values.at(key(input)));
      else if (member.by_rows[i])
        inputs.push_back(cut(input, part, /*waits=*/node.is<MatMul>() && !reads_parts));
      else
        inputs.push_back(rewrite_.mapped(input));
    }
    Node& made = rewrite_.to().add(op_for_rows(node, region_.rows, part.end - part.begin),
                                   std::move(inputs));
    for (size_t i = 0; i < made.outputs.size(); ++i)
      part.values[{node.id, static_cast<int>(i)}] = {&made, static_cast<int>(i)};
  }

  // The part's rows of a value from outside. Logits are not made before all is done with those of
  // the part before.
  Value cut(Value value, const Part& part, bool waits) {
    Value rows = rewrite_.mapped(value);
    rows = reshape(rows, *shape_of_rows(value.shape(), region_.rows, region_.rows));
    if (waits && part.index > 0)
      for (const auto& [at, result] : results_) {
        const bool is_sum = flow_of(result.value).kind == BatchFlow::Kind::kSum;
        rows = barrier(rows, is_sum ? result.made.back() : before_.values.at(at));
      }
    return slice(rows, 0, part.begin, part.end);
  }

  void add_result(Result& result, const Part& part) {
    const Value own = part.values.at(key(result.value));
    if (flow_of(result.value).kind != BatchFlow::Kind::kSum) {
      result.made.push_back(own);
      return;
    }
    // Parts of 16 bits add up in f32, as one product would have.
    const SiteScope scope = scope_of(*result.value.node, part);
    const Value term = cast(own, accumulate_dtype(own.dtype()));
    if (result.made.empty())
      result.made.push_back(term);
    else
      result.made.back() = add(result.made.back(), term);
  }

  void finish(Result& result) {
    const Node& node = *result.value.node;
    const SiteScope scope(rewrite_.to(), node.site.name + "/parts", SiteScope::Path::kAbsolute);
    const TensorType& type = result.value.type();
    const bool is_sum = flow_of(result.value).kind == BatchFlow::Kind::kSum;
    const Value whole = is_sum ? cast(result.made.back(), type.dtype) : concat(result.made, 0);
    // Ops of several results are none of the region's.
    rewrite_.replace(node, {reshape(whole, type.shape)});
  }

  const Graph& graph_;
  const LossRegion& region_;
  int64_t parts_;
  Rewrite rewrite_;
  std::vector<bool> live_;
  std::map<Key, Result> results_;
  Part before_;
};

}  // namespace

bool chunk_loss(Graph& graph, PassContext& context) {
  if (context.options.loss_chunks < 2) return false;
  const std::optional<LossRegion> region = find_loss_region(graph);
  if (!region) return false;
  graph = LossChunker(graph, *region, context.options.loss_chunks).run();
  return true;
}

}  // namespace ridge
