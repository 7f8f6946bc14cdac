// Local rewrites: one row of a table each. `simplify` tries them on every node.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "ridge/compile/pass.h"

namespace ridge {

/// Identity, as text in `identity`. `apply` sees a node of that op of the old graph and its inputs
/// in the new one, which are simplified already; it returns the one value that stands for the
/// node's first result, building nodes where it must, or null where the rule does not match.
struct Rule {
  std::string_view name;
  std::string_view op;  ///< Its name; "" for a rule about several.
  SemanticClass semantic_class;
  std::string_view identity;
  Value (*apply)(const Node& node, std::span<const Value> inputs);
};

/// The tables, by family.
std::span<const Rule> arithmetic_rules();
std::span<const Rule> shape_rules();

/// All rules, in the order in which they are tried.
std::vector<Rule> all_rules();

}  // namespace ridge
