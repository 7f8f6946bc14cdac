// A node as a graph of cuDNN's operations, which is the form in which the library takes it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ridge/backend/cuda/dnn/cudnn.h"
#include "ridge/graph/ops/attention.h"
#include "ridge/graph/ops/conv.h"

namespace ridge::cuda {

/// Names of the tensors of a graph.
enum class DnnTensorId : int64_t {
  kX = 1,
  kW,
  kY,
  kQ,
  kK,
  kV,
  kStats,
  kScale,
  kFill,
  kDropoutScale,
  kDq,
  kDk,
  kDv,
  kDy,
  kFirstVirtual,  ///< From here on: what passes between operations.
};

/// A conv2d or one of its gradients. Its weights are (O, KH, KW, C / groups): for the library,
/// channels are innermost in all of its tensors.
struct DnnConvolution {
  DnnKind kind;
  DType dtype;
  Shape x, w, y;  ///< (N, H, W, C), (KH, KW, C / groups, O), (N, OH, OW, O)
  WindowFields window;
  bool tf32 = false;

  std::string text() const;
};

/// The convolution that a node is; none for other nodes, for paddings that differ between the
/// sides, and for f64, which stays with kernels of ours.
std::optional<DnnConvolution> dnn_convolution(const Node& node);

/// An attention of 16-bit operands without a mask but the causal one, or its gradient.
struct DnnAttention {
  bool is_gradient;
  DType dtype;
  bool causal;
  double scale;
  AttentionLayout layout;

  std::string text() const;
};

/// The attention that a node is; none for other nodes, and where rows of a head are no multiple of
/// 16 bytes.
std::optional<DnnAttention> dnn_attention(const Node& node);

/// A finished graph, with all that it refers to.
class DnnGraph {
 public:
  DnnGraph() = default;
  DnnGraph(const DnnGraph&) = delete;
  DnnGraph& operator=(const DnnGraph&) = delete;
  ~DnnGraph() {
    while (!parts_.empty()) parts_.pop_back();
  }
  const DnnDescriptor& descriptor() const { return *parts_.back(); }

 private:
  friend class DnnGraphBuilder;
  std::vector<std::unique_ptr<DnnDescriptor>> parts_;  // each after what it refers to
};

using DnnGraphRef = std::shared_ptr<const DnnGraph>;

/// DnnError; a refusal where the library has no such operation.
DnnGraphRef convolution_graph(const Dnn& dnn, const DnnConvolution& convolution);
DnnGraphRef attention_graph(const Dnn& dnn, const DnnAttention& attention);

}  // namespace ridge::cuda
