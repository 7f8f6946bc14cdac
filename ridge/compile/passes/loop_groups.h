// Which nodes of a graph share a loop.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "ridge/backend/backend.h"
#include "ridge/graph/graph.h"
#include "ridge/graph/ops/loop_role.h"

namespace ridge {

/// Nodes that become one; a node that no loop can hold is a group of its own.
struct LoopGroup {
  std::vector<const Node*> nodes;  ///< In the order of the graph; none: part of another group now.
  LoopDomain domain;
  bool is_loop = false;
  int time = 0;  ///< When its values are needed: see LoopGroups.
  /// Broadcasts and one-hots of values from outside that the loop makes for itself.
  std::set<const Node*> made_anew;

  int last() const { return nodes.back()->id; }
};

/// Groups the nodes of a graph: each joins the groups whose values it reads, where that is one loop
/// (loop_role.h), within the limits of a loop, and where no group waits for itself.
///
/// The time of a value is the number of nodes that are no loops before it can be used: what only
/// backward needs is not computed, and kept, in forward because its operands are there.
///
/// Constants, broadcasts, reshapes and one-hots are views: a loop that reads one computes it for
/// itself, from what is behind it.
class LoopGroups {
 public:
  LoopGroups(const Graph& graph, Backend& backend);

  const LoopGroup& group(int index) const { return groups_[static_cast<size_t>(index)]; }
  int group_of(const Node& node) const { return group_of_[static_cast<size_t>(node.id)]; }

  /// Indices of the groups, each after those that it reads, else by last node. Views that only
  /// their own loops read are left out.
  std::vector<int> order() const;
  /// Nodes whose values are read outside of the group, or are outputs of the graph.
  std::vector<const Node*> results(const LoopGroup& group) const;
  /// True when `value` is a node of the group, or a view of one.
  bool is_inside(Value value, const LoopGroup& group) const;

 private:
  // Which nodes the backend runs within a loop, asked with a loop of that one op.
  class Members {
   public:
    explicit Members(Backend& backend) : backend_(backend) {}
    bool contains(const Node& node);

   private:
    bool runs_in_loop(const Node& node);

    Backend& backend_;
    std::map<std::string, bool> known_;
  };

  static size_t id(const Node& node) { return static_cast<size_t>(node.id); }
  void find_users(const Graph& graph);
  void find_times(const Graph& graph);
  void find_needed_views(const Graph& graph);
  void add(const Node& node);
  void join_operands(const Node& node, int own);
  void join_lone_reductions();
  bool try_merge(int a, int b);
  bool is_valid(LoopGroup& merged) const;
  bool fits(const LoopGroup& merged) const;
  int settled_before(int first) const;
  bool waits_for_itself(const LoopGroup& merged) const;
  bool is_read_outside(const Node& node, const std::set<int>& inside) const;
  std::set<int> reads(const LoopGroup& group, const std::set<int>& inside) const;
  std::set<int> indices_of(const LoopGroup& group) const;

  std::vector<LoopGroup> groups_;
  std::vector<int> group_of_;
  std::vector<std::vector<const Node*>> users_;
  std::vector<bool> is_output_;
  std::vector<bool> is_member_;  ///< Says of each node whether a loop holds it.
  std::vector<int> times_;
  std::vector<bool> is_needed_;  ///< False for views that only their base's loop reads.
};

/// A node that a loop computes for itself rather than reads: it costs nothing, or is read as what
/// it is made from.
bool is_loop_view(const Node& node);

}  // namespace ridge
