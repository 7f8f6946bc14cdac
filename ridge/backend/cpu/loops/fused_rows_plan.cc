// Cuts a body over rows into passes at the reductions of rows. What several passes need is computed
// anew where that is cheap, else kept in a row buffer.
#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "ridge/backend/cpu/block_kernel.h"
#include "ridge/backend/cpu/loops/fused_rows.h"
#include "ridge/base/alignment.h"
#include "ridge/base/tensor.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"

namespace ridge::cpu {
namespace {

constexpr size_t kMostKeptBytes = 1 << 20;

size_t element_size(const Node& node) { return size_of(node.outputs[0].dtype); }

std::vector<int64_t> axes_of(const Node& node) {
  if (node.is<ReduceSum>()) return node.op_as<ReduceSum>().axes;
  if (node.is<ReduceMean>()) return node.op_as<ReduceMean>().axes;
  return node.op_as<ReduceMax>().axes;
}

StagedReduction staged(const Node& node) {
  const TensorType& x = node.inputs[0].type();
  const double count =
      static_cast<double>(x.elements()) / static_cast<double>(node.outputs[0].elements());
  return {x,
          axes_of(node),
          node.is<ReduceMax>() ? StagedReduction::kMax : StagedReduction::kSum,
          node.is<ReduceMean>() ? count : 1.0};
}

// True for a node that costs more than a store and a load.
bool is_expensive(const Node& node) {
  const auto unary = unary_op(*node.op);
  return unary && is_function(*unary);
}

// A loop under construction: its ops are numbered behind all inputs once these are known.
struct Draft {
  struct Ref {
    bool is_op = false;
    size_t index = 0;
  };
  struct Result {
    Ref value;
    LoopResult::Kind kind;
    RowPlace place;
  };
  RowLoop made;
  std::vector<std::vector<Ref>> operands;  // by op
  std::vector<Result> results;
  std::map<const Node*, Ref> refs;

  Ref read(RowPlace place, DType dtype, bool uniform) {
    for (size_t i = 0; i < made.inputs.size(); ++i)
      if (made.inputs[i] == place) return {false, i};
    made.inputs.push_back(std::move(place));
    made.loop.inputs.push_back({dtype, uniform});
    return {false, made.inputs.size() - 1};
  }
  Ref compute(std::shared_ptr<const Op> op, std::vector<Ref> from, DType dtype) {
    made.loop.ops.push_back({std::move(op), {}, dtype});
    operands.push_back(std::move(from));
    return {true, operands.size() - 1};
  }
  int number(Ref ref) const {
    return static_cast<int>(ref.is_op ? made.inputs.size() + ref.index : ref.index);
  }
  // False where the loop has no kernel.
  bool finish(MakeLoop make_loop) {
    if (results.empty()) return true;
    if (made.inputs.size() > kMostRowPlaces || results.size() > kMostRowPlaces) return false;
    for (size_t i = 0; i < operands.size(); ++i)
      for (const Ref& ref : operands[i]) made.loop.ops[i].operands.push_back(number(ref));
    for (const Result& result : results) {
      made.loop.results.push_back({number(result.value), result.kind});
      made.results.push_back(result.place);
    }
    made.kernel = make_loop(made.loop);
    return made.kernel != nullptr;
  }
};

class Planner {
 public:
  Planner(const FusedBody& body, const std::set<const Node*>& kept) : body_(body), kept_(kept) {
    plan_.rows = body.domain.rows();
    plan_.columns = body.domain.columns;
    size_t passes = 1;
    for (const int level : body.levels) passes = std::max(passes, static_cast<size_t>(level) + 1);
    drafts_.resize(passes);
    plan_.passes.resize(passes);
    plan_.values.resize(passes + 1);
    for (size_t i = 0; i < body.graph.outputs().size(); ++i)
      outputs_[body.graph.outputs()[i].value.node].push_back(i);
  }

  void build_passes() {
    for (const auto& node : body_.graph.nodes()) {
      if (is_row_result(*node)) add_row_result(*node);
      if (role(*node) == LoopRole::kColumns) add_sum(*node);
      const auto stored = outputs_.find(node.get());
      if (is_domain(role(*node)) && stored != outputs_.end())
        for (const size_t output : stored->second)
          store(*node, {RowPlace::kOutput, output, element_size(*node)});
    }
  }

  // Expensive values that more than one pass computes.
  std::set<const Node*> made_twice() const {
    std::set<const Node*> found;
    size_t bytes = 0;
    for (const auto& [node, times] : times_made_) {
      if (times < 2 || !is_expensive(*node)) continue;
      found.insert(node);
      bytes += static_cast<size_t>(plan_.columns) * element_size(*node);
    }
    return bytes <= kMostKeptBytes ? found : std::set<const Node*>();
  }

  std::optional<RowPlan> finish(MakeLoop make_loop) {
    for (const auto& node : body_.graph.nodes())
      if (role(*node) == LoopRole::kTotal) add_total(*node);
    for (size_t level = plan_.values.size(); level-- > 0;) build_values(level);
    choose_prefetches();
    for (size_t pass = 0; pass < drafts_.size(); ++pass) {
      if (!drafts_[pass].finish(make_loop)) return std::nullopt;
      plan_.passes[pass].elements = std::move(drafts_[pass].made);
    }
    for (auto& [level, draft] : value_drafts_) {
      if (!draft.finish(make_loop)) return std::nullopt;
      plan_.values[level] = std::move(draft.made);
    }
    plan_.value_count = slot_count_;
    return std::move(plan_);
  }

 private:
  using Ref = Draft::Ref;

  size_t level_of(const Node& node) const { return static_cast<size_t>(body_.level(node)); }
  LoopRole role(const Node& node) const { return body_.role(node); }
  bool is_row_result(const Node& node) const {
    return role(node) == LoopRole::kRow && (is_loop_reduction(node) || node.is<Pick>());
  }

  // ---- values of the domain ----

  void store(const Node& node, RowPlace place) {
    Draft& draft = drafts_[level_of(node)];
    draft.results.push_back({element(draft, node, level_of(node)), LoopResult::kStore, place});
  }

  Ref element(Draft& draft, const Node& node, size_t pass) {
    const auto found = draft.refs.find(&node);
    if (found != draft.refs.end()) return found->second;
    const Ref made = make_element(draft, node, pass);
    draft.refs.emplace(&node, made);
    return made;
  }

  Ref make_element(Draft& draft, const Node& node, size_t pass) {
    const DType dtype = node.outputs[0].dtype;
    const size_t size = size_of(dtype);
    if (node.is<Input>())
      return draft.read({RowPlace::kInput, input_number(node), size}, dtype, false);
    if (node.is<Constant>()) return draft.compute(node.op, {}, dtype);
    if (node.is<Reshape>()) return element(draft, *node.inputs[0].node, pass);
    if (node.is<Broadcast>()) return make_broadcast(draft, node);
    if (node.is<OneHot>()) return draft.read({RowPlace::kMark, mark(node), size}, dtype, true);
    if (level_of(node) < pass) {
      if (kept_.contains(&node))
        return draft.read({RowPlace::kKept, buffer_of(node), size}, dtype, false);
      if (const auto stored = outputs_.find(&node); stored != outputs_.end())
        return draft.read({RowPlace::kOutput, stored->second.front(), size}, dtype, false);
    }
    ++times_made_[&node];
    std::vector<Ref> operands;
    for (const Value& input : node.inputs) operands.push_back(element(draft, *input.node, pass));
    return draft.compute(node.op, std::move(operands), dtype);
  }

  Ref make_broadcast(Draft& draft, const Node& node) {
    const Node& from = *node.inputs[0].node;
    const DType dtype = node.outputs[0].dtype;
    const size_t size = size_of(dtype);
    if (role(from) == LoopRole::kRow)
      return draft.read({RowPlace::kValue, slot(behind_reshapes(from)), size}, dtype, true);
    BroadcastMap map(from.outputs[0].shape, node.outputs[0].shape);
    const bool is_uniform = map.axes[0].stride == 0;
    return draft.read(
        {RowPlace::kMapped, input_number(from), size, std::move(map)}, dtype, is_uniform);
  }

  size_t mark(const Node& node) {
    plan_.mark = row_place(*node.inputs[0].node);
    plan_.mark_is_i64 = node.inputs[0].dtype() == DType::kI64;
    Tensor one({node.outputs[0].dtype, {}});
    one.set(0, 1.0);
    std::memcpy(plan_.ones.emplace_back().data(), one.data(), size_of(node.outputs[0].dtype));
    return plan_.ones.size() - 1;
  }

  // The row buffer of a value; the pass that makes it stores it there.
  size_t buffer_of(const Node& node) {
    const auto [at, is_new] = buffers_.try_emplace(&node, plan_.kept.size());
    if (is_new) {
      plan_.kept.push_back(element_size(node));
      store(node, {RowPlace::kKept, at->second, element_size(node)});
    }
    return at->second;
  }

  // The next rows are fetched while the memory is at rest: in passes that read a row again.
  void choose_prefetches() {
    constexpr int64_t kFewestBytes = int64_t{1} << 20;  // bytes; smaller inputs stay in a cache
    // Measured. Long rows go through the passes some at a time: not what these have read already.
    const int64_t least = plan_.columns > kReduceChunk ? 96 << 10 : 6 << 10;
    std::vector<int> fetched(drafts_.size());
    for (size_t number = 0; number < body_.graph.inputs().size(); ++number) {
      std::vector<std::pair<size_t, LoopInput*>> readers;
      int64_t bytes = 0;
      for (size_t pass = 0; pass < drafts_.size(); ++pass) {
        RowLoop& loop = drafts_[pass].made;
        for (size_t i = 0; i < loop.inputs.size(); ++i) {
          const RowPlace& place = loop.inputs[i];
          if (place.kind != RowPlace::kInput || place.index != number) continue;
          readers.emplace_back(pass, &loop.loop.inputs[i]);
          bytes = plan_.columns * static_cast<int64_t>(place.size);
        }
      }
      if (readers.size() < 2 || bytes * plan_.rows < kFewestBytes) continue;
      const auto [pass, input] =
          *std::min_element(readers.begin() + 1, readers.end(), [&](const auto& a, const auto& b) {
            return fetched[a.first] < fetched[b.first];
          });
      ++fetched[pass];
      input->ahead = static_cast<int>((least + bytes - 1) / bytes * bytes);
    }
  }

  // ---- what passes end in ----

  void add_row_result(const Node& node) {
    const size_t pass = level_of(node) - 1;
    if (node.is<Pick>()) {
      plan_.passes[pass].picks.push_back({.input = input_number(*node.inputs[0].node),
                                          .size = element_size(node),
                                          .index = row_place(*node.inputs[1].node),
                                          .is_i64 = node.inputs[1].dtype() == DType::kI64,
                                          .value = raw_slot(node),
                                          .limit = node.op_as<Pick>().columns_of(plan_.columns),
                                          .shape = node.inputs[1].shape()});
      return;
    }
    Draft& draft = drafts_[pass];
    draft.results.push_back({element(draft, *node.inputs[0].node, pass),
                             node.is<ReduceMax>() ? LoopResult::kMax : LoopResult::kSum,
                             {RowPlace::kValue, raw_slot(node), element_size(node)}});
  }

  void add_sum(const Node& node) {
    const Node& summed = behind_reshapes(*node.inputs[0].node);
    const size_t size = element_size(node);
    RowPlace rows;
    if (summed.is<Input>())
      rows = {RowPlace::kInput, input_number(summed), size};
    else if (const auto stored = outputs_.find(&summed); stored != outputs_.end())
      rows = {RowPlace::kOutput, stored->second.front(), size};
    else
      rows = {RowPlace::kKept, buffer_of(summed), size};
    for (const size_t output : outputs_[&node]) {
      plan_.sums.push_back({rows,
                            static_cast<int>(node.outputs[0].dtype),
                            output,
                            staged(node),
                            plan_.workspace_bytes});
      plan_.workspace_bytes += plan_.sums.back().reduction.workspace_bytes();
    }
  }

  void add_total(const Node& node) {
    const Node& reduced = behind_reshapes(*node.inputs[0].node);
    const size_t size = element_size(node);
    for (const size_t output : outputs_[&node]) {
      const size_t values = plan_.workspace_bytes;
      plan_.workspace_bytes += aligned_bytes(static_cast<size_t>(plan_.rows) * size);
      plan_.totals.push_back({output, values, staged(node), plan_.workspace_bytes});
      plan_.workspace_bytes += plan_.totals.back().reduction.workspace_bytes();
      stores_[&reduced].push_back({RowPlace::kRowTotal, values, size});
    }
  }

  // ---- values of the rows ----

  // The slot for a pass's result of each row: for a mean, the sum.
  size_t raw_slot(const Node& node) {
    const auto [at, is_new] = raw_slots_.try_emplace(&node, slot_count_);
    if (is_new) ++slot_count_;
    return at->second;
  }

  // The slot with the value of each row.
  size_t slot(const Node& node) {
    if (is_row_result(node) && !node.is<ReduceMean>()) return raw_slot(node);
    const auto found = slots_.find(&node);
    if (found != slots_.end()) return found->second;
    slots_.emplace(&node, slot_count_);
    stores_[&node].push_back({RowPlace::kValue, slot_count_, element_size(node)});
    return slot_count_++;
  }

  RowPlace row_place(const Node& node) {
    const Node& base = behind_reshapes(node);
    if (base.is<Input>()) return {RowPlace::kRowInput, input_number(base), element_size(base)};
    return {RowPlace::kValue, slot(base), element_size(base)};
  }

  // The loop over rows that comes before a pass. Loops before it are built later: it may ask for
  // values of theirs.
  void build_values(size_t level) {
    Draft& draft = value_drafts_[level];
    for (const auto& node : body_.graph.nodes()) {
      if (role(*node) != LoopRole::kRow || level_of(*node) != level) continue;
      if (const auto stored = stores_.find(node.get()); stored != stores_.end())
        for (const RowPlace& place : stored->second)
          draft.results.push_back({row_value(draft, *node, level), LoopResult::kStore, place});
      if (const auto stored = outputs_.find(node.get()); stored != outputs_.end())
        for (const size_t output : stored->second)
          draft.results.push_back({row_value(draft, *node, level),
                                   LoopResult::kStore,
                                   {RowPlace::kRowOutput, output, element_size(*node)}});
    }
  }

  Ref row_value(Draft& draft, const Node& node, size_t level) {
    const auto found = draft.refs.find(&node);
    if (found != draft.refs.end()) return found->second;
    const Ref made = make_row_value(draft, node, level);
    draft.refs.emplace(&node, made);
    return made;
  }

  Ref make_row_value(Draft& draft, const Node& node, size_t level) {
    const DType dtype = node.outputs[0].dtype;
    const size_t size = size_of(dtype);
    if (node.is<Input>())
      return draft.read({RowPlace::kRowInput, input_number(node), size}, dtype, false);
    if (node.is<Constant>()) return draft.compute(node.op, {}, dtype);
    if (node.is<Reshape>()) return row_value(draft, *node.inputs[0].node, level);
    if (node.is<Broadcast>())
      return draft.read({RowPlace::kScalar, input_number(*node.inputs[0].node), size}, dtype, true);
    if (level_of(node) < level)
      return draft.read({RowPlace::kValue, slot(node), size}, dtype, false);
    if (is_row_result(node)) {
      const Ref raw = draft.read({RowPlace::kValue, raw_slot(node), size}, dtype, false);
      return node.is<ReduceMean>() ? divided(draft, raw, dtype) : raw;
    }
    std::vector<Ref> operands;
    for (const Value& input : node.inputs) operands.push_back(row_value(draft, *input.node, level));
    return draft.compute(node.op, std::move(operands), dtype);
  }

  Ref divided(Draft& draft, Ref sum, DType dtype) const {
    auto count = std::make_shared<Constant>();
    count->dtype = dtype;
    count->values = {static_cast<double>(plan_.columns)};
    const Ref divisor = draft.compute(std::move(count), {}, dtype);
    return draft.compute(std::make_shared<Div>(), {sum, divisor}, dtype);
  }

  const FusedBody& body_;
  const std::set<const Node*>& kept_;
  RowPlan plan_;
  std::vector<Draft> drafts_;                            // by pass
  std::map<size_t, Draft> value_drafts_;                 // by level
  std::map<const Node*, std::vector<size_t>> outputs_;   // the node's outputs, by value
  std::map<const Node*, std::vector<RowPlace>> stores_;  // destinations of values of rows
  std::map<const Node*, size_t> slots_, raw_slots_, buffers_;
  std::map<const Node*, int> times_made_;
  size_t slot_count_ = 0;
};

}  // namespace

std::optional<RowPlan> plan_rows(const FusedBody& body, MakeLoop make_loop) {
  const std::set<const Node*> none;
  Planner trial(body, none);
  trial.build_passes();
  const std::set<const Node*> kept = trial.made_twice();
  Planner planner(body, kept);
  planner.build_passes();
  return planner.finish(make_loop);
}

}  // namespace ridge::cpu
