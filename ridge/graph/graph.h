// The graph: typed, static-shape, single-assignment. Nodes are kept in a topological order.
//
// A graph belongs to one thread at a time, even for reading: fused ops keep what they have parsed
// of their bodies.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "ridge/graph/data_spec.h"
#include "ridge/graph/op.h"
#include "ridge/graph/site.h"

namespace ridge {

/// Output `index` of `node`; null when node is null. A handle: copying it copies no data.
struct Value {
  Node* node = nullptr;
  int index = 0;

  explicit operator bool() const { return node != nullptr; }
  bool operator==(const Value&) const = default;
  const TensorType& type() const;
  DType dtype() const { return type().dtype; }
  const Shape& shape() const { return type().shape; }
  int64_t rank() const { return type().rank(); }
  /// Size of dimension `axis`; -1 is the last.
  int64_t dim(int64_t axis) const;
  Graph& graph() const;
};

struct Node {
  int id = 0;  ///< Position in the graph.
  std::shared_ptr<const Op> op;
  std::vector<Value> inputs;
  std::vector<TensorType> outputs;
  Site site;
  Graph* graph = nullptr;

  /// The op as a T; InternalError when it is another.
  template <typename T>
  const T& op_as() const {
    check_internal(is<T>(), "node '{}' is not the op that was asked for", site.name);
    return static_cast<const T&>(*op);
  }
  /// By the name, which one class has: passes ask far too often for a dynamic_cast.
  template <typename T>
  bool is() const {
    static_assert(std::is_final_v<T>);
    return op->name() == T::kTraits.name;
  }
  std::vector<TensorType> input_types() const;
};

/// A named result. With `updates`, the input of that name is donated: the result takes its buffer.
struct Output {
  std::string name;
  Value value;
  std::string updates;
};

class Graph {
 public:
  explicit Graph(std::string name = "main") : name_(std::move(name)) {}
  Graph(Graph&& other) noexcept;
  Graph& operator=(Graph&& other) noexcept;

  const std::string& name() const { return name_; }
  const std::vector<std::unique_ptr<Node>>& nodes() const { return nodes_; }
  const std::vector<Output>& outputs() const { return outputs_; }
  const Binding& binding() const { return binding_; }
  void set_binding(Binding binding) { binding_ = std::move(binding); }

  /// Adds a node at the end, its types inferred and its site made from the open scopes. UserError,
  /// with the site, when the op refuses the inputs.
  Node& add(std::shared_ptr<const Op> op, std::vector<Value> inputs);
  /// The same with a given site (a parsed or cloned node).
  Node& add(std::shared_ptr<const Op> op, std::vector<Value> inputs, Site site);

  /// A node like `like`, of any graph, on inputs of the same types: its types are taken over, not
  /// inferred again.
  Node& add_like(const Node& like, std::vector<Value> inputs);

  /// Names a result; `updates` names the input whose buffer it takes over. UserError when the name
  /// is taken or the input is unknown, of another type, or already updated.
  void add_output(std::string name, Value value, std::string updates = {});

  /// The nodes of op `input`, in order.
  const std::vector<Node*>& inputs() const { return inputs_; }
  /// The input of that name, or null.
  Node* find_input(std::string_view name) const;

  /// The site that a node of op `op_name` would get now.
  Site next_site(std::string_view op_name);

  /// A copy with nodes of its own.
  Graph clone() const;

 private:
  friend class SiteScope;
  void adopt_nodes();
  Node& append(std::unique_ptr<Node> node);

  std::string name_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<Node*> inputs_;
  std::unordered_map<std::string, Node*> input_of_name_;
  std::vector<Output> outputs_;
  Binding binding_;
  std::string scope_;
  std::unordered_map<std::string, int> ordinals_;  ///< Next ordinal by "path:op".
};

/// While it lives, nodes of the graph get sites below `name`: scopes nest by '.', unless `path`
/// says that the name replaces the scopes that are open.
class SiteScope {
 public:
  enum class Path : uint8_t { kNested, kAbsolute };
  SiteScope(Graph& graph, std::string_view name, Path path = Path::kNested);
  ~SiteScope() { graph_.scope_ = std::move(saved_); }
  SiteScope(const SiteScope&) = delete;
  SiteScope& operator=(const SiteScope&) = delete;

 private:
  Graph& graph_;
  std::string saved_;
};

/// Adds a node of a T with the given fields to the graph of the first input and returns its first
/// result.
template <typename T>
Value add_node(T op, std::vector<Value> inputs) {
  Graph& graph = inputs.at(0).graph();
  return {&graph.add(std::make_shared<const T>(std::move(op)), std::move(inputs)), 0};
}

}  // namespace ridge
