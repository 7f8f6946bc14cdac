// Reverse-mode automatic differentiation, graph to graph: the gradient is more nodes of the graph.
#pragma once

#include <span>
#include <vector>

#include "ridge/graph/graph.h"

namespace ridge {

/// For each of `wrt`, the gradient of sum_i <seeds[i], outputs[i]>, or a null Value where no
/// gradient flows. Seeds have the types of their outputs. The new nodes' sites are those of the
/// nodes they differentiate + "/grad". Nodes before `first_node` are not looked through: values of
/// `wrt` there count as independent, as the operands of a fused op do, even where one was computed
/// from another. UserError when a node on the way has no gradient.
std::vector<Value> vector_jacobian_product(std::span<const Value> outputs,
                                           std::span<const Value> seeds,
                                           std::span<const Value> wrt,
                                           size_t first_node = 0);

/// d loss / d wrt for a scalar float loss; zeros where the loss does not depend on a value.
std::vector<Value> gradients(Value loss, std::span<const Value> wrt);

}  // namespace ridge
