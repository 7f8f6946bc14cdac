// Convolution and attention by cuDNN: its plans are choices of a node.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "ridge/backend/backend.h"
#include "ridge/backend/cuda/dnn/plan.h"

namespace ridge::cuda {

/// One plan for a node.
struct DnnChoice {
  Choice choice;  ///< "cudnn_eng12_k2=3_k13=1".
  DnnPlanRef plan;
  /// Whose handle the plan was made with, where that is not the one that launches it: lives as long
  /// as the plan.
  std::shared_ptr<const Dnn> planned_by = nullptr;
};

/// The first of the bits classes of these choices. Each has its own: the library does not say which
/// of its engines agree to the bit.
inline constexpr int kDnnBits = 1024;

/// True for nodes that the library is asked about. Reads nothing but the node's op and types.
bool is_planned_by_dnn(const Node& node);

/// Plans for a `conv2d`, its gradients, `attention` and `attention_grad`, the library's best guess
/// first; none for other nodes, and where the library has none. All of them give the same bits in
/// each run. Planned here, and compiled where the library compiles. DnnError.
std::vector<DnnChoice> dnn_choices(const Dnn& dnn, const Node& node);

/// The kernel of a choice that dnn_choices() gave for this node; `make` gives those of `transpose`
/// nodes, which turn weights into the library's order and back, in the workspace. Nothing is
/// allocated on the device in a launch. DnnError.
std::unique_ptr<NodeKernel> make_dnn_kernel(
    std::shared_ptr<const Dnn> dnn,
    const Node& node,
    const DnnChoice& choice,
    const std::function<std::unique_ptr<NodeKernel>(const Node&)>& make);

}  // namespace ridge::cuda
