// Makes one node of loops that say the same of tensors of any shapes, where the device runs such a
// list at once: after backward, each parameter has a loop of its own.
//
//   p0', m0' = fused(g0, p0, m0, rate)
//   p1', m1' = fused(g1, p1, m1, rate)   ->   p0', m0', p1', m1', ... = fused_each(rate, g0, p0,
//   ...                                                                   m0, g1, p1, m1, ...)
//
// Operands wait for the whole list, so it is made only where the arena needs no more bytes by it.
#include <algorithm>
#include <map>
#include <set>

#include "ridge/compile/memory/aliases.h"
#include "ridge/compile/pass.h"
#include "ridge/compile/passes/has_kernel.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/fused_each.h"
#include "ridge/graph/ops/source.h"
#include "ridge/graph/rewrite.h"

namespace ridge {
namespace {

// Fewer gain less than they may lose: what was made just before is no longer in the cache.
constexpr size_t kFewest = 4;
// A list may add at most this many bytes to the arena: partial sums of its tensors lie there side
// by side.
constexpr int64_t kLittle = 64 << 10;

size_t id(const Node& node) { return static_cast<size_t>(node.id); }

struct List {
  std::vector<const Node*> nodes;  // in the order of the graph
  std::vector<EachPart> parts;
};

bool is_run_at_once(Backend& backend, const std::vector<EachPart>& parts) {
  Graph probe("probe");
  std::vector<EachPart> alone = parts;
  size_t number = 0;
  const auto open = [&](std::vector<Value>& values) {
    for (Value& value : values) value = input(probe, fmt::format("{}", number++), value.type());
  };
  open(alone.front().shared);
  for (EachPart& part : alone) {
    part.shared = alone.front().shared;
    open(part.own);
  }
  return has_kernel(fused_each(probe, alone, Site{"probe"}), backend);
}

// Asked first, so that a device that runs none loses no time.
bool runs_lists(Backend& backend) {
  Graph graph("probe");
  std::vector<EachPart> parts;
  for (size_t i = 0; i < kFewest; ++i) {
    const Value x = input(graph, fmt::format("{}", i), {DType::kF32, {2}});
    parts.push_back(*part_of_each(*neg(x).node));
  }
  return is_run_at_once(backend, parts);
}

// Loops of one kind have the same body and the same shared operands.
using Kind = std::pair<std::string, std::vector<std::pair<int, int>>>;

Kind kind_of(const EachPart& part) {
  Kind kind{part.body, {}};
  for (const Value& value : part.shared) kind.second.emplace_back(value.node->id, value.index);
  return kind;
}

// Takes from `nodes` those that wait for none of the others, the first among them.
List take_list(const Graph& graph, std::map<const Node*, EachPart>& nodes) {
  List list;
  std::vector<bool> behind(graph.nodes().size());  // in the list, or made from what is
  for (const auto& node : graph.nodes()) {
    const bool waits = std::any_of(node->inputs.begin(),
                                   node->inputs.end(),
                                   [&](const Value& value) { return behind[id(*value.node)]; });
    const auto found = nodes.find(node.get());
    behind[id(*node)] = waits || found != nodes.end();
    if (found == nodes.end() || waits) continue;
    list.nodes.push_back(node.get());
    list.parts.push_back(std::move(found->second));
    nodes.erase(found);
  }
  return list;
}

// By their first nodes.
std::vector<List> find_lists(const Graph& graph) {
  std::map<Kind, std::map<const Node*, EachPart>> kinds;
  for (const auto& node : graph.nodes())
    if (std::optional<EachPart> part = part_of_each(*node)) {
      Kind kind = kind_of(*part);
      kinds[std::move(kind)].emplace(node.get(), std::move(*part));
    }
  std::vector<List> lists;
  for (auto& [kind, nodes] : kinds)
    while (nodes.size() >= kFewest)
      if (List list = take_list(graph, nodes); list.nodes.size() >= kFewest)
        lists.push_back(std::move(list));
  std::sort(lists.begin(), lists.end(), [](const List& a, const List& b) {
    return a.nodes.front()->id < b.nodes.front()->id;
  });
  return lists;
}

// The common beginning of the sites' paths: "optimizer" of "optimizer.a:mul.0" and
// "optimizer.b:mul.0".
std::string common_path(const std::vector<const Node*>& nodes) {
  const std::string& first = nodes.front()->site.name;
  std::string common = first.substr(0, first.find(':'));
  for (const Node* node : nodes)
    while (!common.empty() && (!node->site.name.starts_with(common) ||
                               node->site.name.find_first_of(".:", common.size()) != common.size()))
      common.resize(common.find('.') == std::string::npos ? 0 : common.rfind('.'));
  return common;
}

// The list as one node, where its last one was; what reads it comes after that.
class Joined {
 public:
  Joined(const Graph& graph, const List& list)
      : graph_(graph), list_(list), rewrite_(graph), waits_(graph.nodes().size()) {
    for (const auto& node : graph.nodes()) units_.push_back(id(*node));
    for (const Node* node : list.nodes) units_[id(*node)] = id(*list.nodes.back());
  }

  Graph run() {
    std::vector<std::vector<size_t>> readers(units_.size());
    for (const auto& node : graph_.nodes())
      for (const Value& value : node->inputs) {
        readers[units_[id(*value.node)]].push_back(units_[id(*node)]);
        ++waits_[units_[id(*node)]];
      }
    std::set<size_t> ready;
    for (size_t unit = 0; unit < units_.size(); ++unit)
      if (units_[unit] == unit && waits_[unit] == 0) ready.insert(unit);
    while (!ready.empty()) {
      const size_t unit = *ready.begin();
      ready.erase(ready.begin());
      const Node& node = *graph_.nodes()[unit];
      if (&node == list_.nodes.back())
        join();
      else
        rewrite_.copy(node);
      for (const size_t reader : readers[unit])
        if (--waits_[reader] == 0) ready.insert(reader);
    }
    return rewrite_.finish();
  }

 private:
  void join() {
    std::vector<EachPart> parts = list_.parts;
    for (EachPart& part : parts)
      for (std::vector<Value>* values : {&part.shared, &part.own})
        for (Value& value : *values) value = rewrite_.mapped(value);
    Node& joined = fused_each(rewrite_.to(), parts, free_site(common_path(list_.nodes)));
    int result = 0;
    for (const Node* node : list_.nodes) {
      std::vector<Value> results;
      for (size_t i = 0; i < node->outputs.size(); ++i) results.push_back({&joined, result++});
      rewrite_.replace(*node, std::move(results));
    }
  }

  // Other lists have been given sites of the path before.
  Site free_site(const std::string& path) const {
    for (int ordinal = 0;; ++ordinal) {
      const Site site{fmt::format("{}:fused_each.{}", path, ordinal)};
      const auto& nodes = graph_.nodes();
      if (std::none_of(
              nodes.begin(), nodes.end(), [&](const auto& node) { return node->site == site; }))
        return site;
    }
  }

  const Graph& graph_;
  const List& list_;
  Rewrite rewrite_;
  std::vector<size_t> units_;  // by node: the last of its list, or the node itself
  std::vector<int> waits_;     // by unit: operands that are not there yet
};

int64_t arena_bytes(const Graph& graph, const ArenaOptions& options) {
  Graph separate = graph.clone();
  separate_updates(separate, options.reuse);
  return place_arena(separate, options).layout.peak;
}

// Compares the arena's bytes with lists to its bytes without any.
class ArenaGrowth {
 public:
  explicit ArenaGrowth(const ArenaOptions& options) : options_(options) {}

  bool is_little(const Graph& joined, const Graph& graph) {
    if (!options_.in_state) return true;
    if (before_ < 0) before_ = arena_bytes(graph, options_);
    const int64_t after = arena_bytes(joined, options_);
    return after <= before_ + kLittle || is_close(after, before_);
  }

 private:
  const ArenaOptions& options_;
  int64_t before_ = -1;  // bytes for the first graph that was asked for: it has no lists
};

}  // namespace

bool join_loops(Graph& graph, PassContext& context) {
  if (!runs_lists(context.backend)) return false;
  bool changed = false;
  ArenaGrowth growth(context.options.arena);
  // Sites of the first nodes of lists that were refused.
  std::set<std::string> refused;
  for (bool found = true; found;) {
    found = false;
    for (const List& list : find_lists(graph)) {
      if (refused.contains(list.nodes.front()->site.name)) continue;
      Graph joined = Joined(graph, list).run();
      if (!is_run_at_once(context.backend, list.parts) || !growth.is_little(joined, graph)) {
        refused.insert(list.nodes.front()->site.name);
        continue;
      }
      graph = std::move(joined);
      changed = found = true;
      break;
    }
  }
  return changed;
}

}  // namespace ridge
