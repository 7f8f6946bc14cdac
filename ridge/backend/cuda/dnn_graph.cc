#include "ridge/backend/cuda/dnn_graph.h"

#include "ridge/base/alignment.h"

namespace ridge::cuda {

using enum DnnAttribute;

namespace {

constexpr int64_t kRowAlignment = 16;  // of the heads of a packed projection

DnnDataType dnn_type(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return DnnDataType::kF16;
    case DType::kBF16:
      return DnnDataType::kBF16;
    default:
      return DnnDataType::kF32;
  }
}

bool has_16_bits(DType dtype) { return dtype == DType::kF16 || dtype == DType::kBF16; }

struct TensorText {
  DnnDataType type;
  std::vector<int64_t> sizes, strides;
  int64_t alignment = kBufferAlignment;
};

}  // namespace

/// Makes descriptors, each finished before the next refers to it.
class DnnGraphBuilder {
 public:
  explicit DnnGraphBuilder(const Dnn& dnn) : dnn_(dnn), graph_(std::make_shared<DnnGraph>()) {}

  DnnDescriptor& add(DnnKind kind) {
    graph_->parts_.push_back(std::make_unique<DnnDescriptor>(dnn_.make(kind)));
    return *graph_->parts_.back();
  }

  const DnnDescriptor& tensor(DnnTensorId id, const TensorText& text) {
    DnnDescriptor& made = start_tensor(id, text);
    made.finalize();
    return made;
  }
  /// What passes between operations, and is never in memory.
  const DnnDescriptor& virtual_tensor(DnnTensorId id, const TensorText& text) {
    DnnDescriptor& made = start_tensor(id, text);
    made.set(kTensorIsVirtual, true);
    made.finalize();
    return made;
  }
  /// One f32 of the host's, read when a launch is queued.
  const DnnDescriptor& scalar(DnnTensorId id) {
    DnnDescriptor& made = start_tensor(
        id, {DnnDataType::kF32, {1, 1, 1, 1}, {1, 1, 1, 1}, static_cast<int64_t>(sizeof(float))});
    made.set(kTensorIsByValue, true);
    made.finalize();
    return made;
  }

  const DnnDescriptor& graph_of(const DnnDescriptor& operation) {
    DnnDescriptor& made = add(DnnKind::kGraph);
    dnn_.aim(made, kGraphHandle, std::nullopt);
    made.set(kGraphOperations, operation);
    made.finalize();
    return made;
  }

  DnnGraphRef finish(const DnnDescriptor& operation) {
    graph_of(operation);
    return std::move(graph_);
  }

 private:
  DnnDescriptor& start_tensor(DnnTensorId id, const TensorText& text) {
    DnnDescriptor& made = add(DnnKind::kTensor);
    made.set(kTensorUniqueId, static_cast<int64_t>(id));
    made.set(kTensorDataType, text.type);
    made.set(kTensorDimensions, text.sizes);
    made.set(kTensorStrides, text.strides);
    made.set(kTensorByteAlignment, text.alignment);
    return made;
  }

  const Dnn& dnn_;
  std::shared_ptr<DnnGraph> graph_;
};

// ---- convolution ----

std::string DnnConvolution::text() const {
  const char* const what = kind == DnnKind::kConvolutionForward     ? "conv2d"
                           : kind == DnnKind::kConvolutionGradInput ? "conv2d_grad_input"
                                                                    : "conv2d_grad_weight";
  return fmt::format("{} of {} {} with {} to {}{}",
                     what,
                     name_of(dtype),
                     to_string(x),
                     to_string(w),
                     to_string(y),
                     tf32 ? " in TF32" : "");
}

std::optional<DnnConvolution> dnn_convolution(const Node& node) {
  if (node.inputs.size() != 2) return std::nullopt;
  const Shape &a = node.inputs[0].shape(), &b = node.inputs[1].shape();
  const Shape& made = node.outputs[0].shape;
  const DType dtype = node.outputs[0].dtype;
  std::optional<DnnConvolution> c;
  const auto take =
      [&](DnnKind kind, const auto& op, const Shape& x, const Shape& w, const Shape& y) {
        c = {kind, dtype, x, w, y, op.window, op.tf32};
      };
  if (node.is<Conv2d>())
    take(DnnKind::kConvolutionForward, node.op_as<Conv2d>(), a, b, made);
  else if (node.is<Conv2dGradInput>())
    take(DnnKind::kConvolutionGradInput, node.op_as<Conv2dGradInput>(), made, b, a);
  else if (node.is<Conv2dGradWeight>())
    take(DnnKind::kConvolutionGradWeight, node.op_as<Conv2dGradWeight>(), a, made, b);
  if (!c || dtype == DType::kF64 || node.inputs[0].type().dtype != dtype) return std::nullopt;
  // The library takes such paddings, and few have ever asked it to.
  const auto& padding = c->window.padding;
  if (padding[0] != padding[2] || padding[1] != padding[3]) return std::nullopt;
  return c;
}

DnnGraphRef convolution_graph(const Dnn& dnn, const DnnConvolution& c) {
  DnnGraphBuilder builder(dnn);
  const DnnDataType type = dnn_type(c.dtype);
  // In the library's order (N, C, H, W), with the strides of NHWC.
  const auto image = [&](DnnTensorId id, const Shape& s) -> const DnnDescriptor& {
    return builder.tensor(
        id, {type, {s[0], s[3], s[1], s[2]}, {s[1] * s[2] * s[3], 1, s[2] * s[3], s[3]}});
  };
  const DnnDescriptor& x = image(DnnTensorId::kX, c.x);
  const DnnDescriptor& y = image(DnnTensorId::kY, c.y);
  const int64_t rows = c.w[0], columns = c.w[1], channels = c.w[2];
  const DnnDescriptor& w =
      builder.tensor(DnnTensorId::kW,
                     {type,
                      {c.w[3], channels, rows, columns},
                      {rows * columns * channels, 1, columns * channels, channels}});
  DnnDescriptor& convolution = builder.add(DnnKind::kConvolution);
  convolution.set(kConvolutionComputeType, DnnDataType::kF32);
  convolution.set(kConvolutionMode, DnnConvolutionMode::kCrossCorrelation);
  convolution.set(kConvolutionSpatialDims, int64_t{2});
  convolution.set(kConvolutionDilations, c.window.dilation);
  convolution.set(kConvolutionStrides, c.window.stride);
  const std::vector<int64_t> padding{c.window.padding[0], c.window.padding[1]};
  convolution.set(kConvolutionPrePaddings, padding);
  convolution.set(kConvolutionPostPaddings, padding);
  convolution.finalize();

  struct Attributes {
    DnnAttribute convolution, x, w, y, alpha, beta;
  };
  const Attributes at = c.kind == DnnKind::kConvolutionForward ? Attributes{kForwardConvolution,
                                                                            kForwardX,
                                                                            kForwardW,
                                                                            kForwardY,
                                                                            kForwardAlpha,
                                                                            kForwardBeta}
                        : c.kind == DnnKind::kConvolutionGradInput
                            ? Attributes{kGradInputConvolution,
                                         kGradInputDx,
                                         kGradInputW,
                                         kGradInputDy,
                                         kGradInputAlpha,
                                         kGradInputBeta}
                            : Attributes{kGradWeightConvolution,
                                         kGradWeightX,
                                         kGradWeightDw,
                                         kGradWeightDy,
                                         kGradWeightAlpha,
                                         kGradWeightBeta};
  DnnDescriptor& operation = builder.add(c.kind);
  operation.set(at.convolution, convolution);
  operation.set(at.x, x);
  operation.set(at.w, w);
  operation.set(at.y, y);
  operation.set(at.alpha, 1.0F);
  operation.set(at.beta, 0.0F);
  operation.finalize();
  return builder.finish(operation);
}

// ---- attention ----

std::string DnnAttention::text() const {
  return fmt::format("{} of {}, {} heads of ({}, {}, {}, {}) in {} samples{}",
                     is_gradient ? "attention_grad" : "attention",
                     name_of(dtype),
                     layout.heads,
                     layout.queries,
                     layout.keys,
                     layout.depth,
                     layout.width,
                     layout.batch,
                     causal ? ", causal" : "");
}

std::optional<DnnAttention> dnn_attention(const Node& node) {
  const bool is_gradient = node.is<AttentionGrad>();
  if (!is_gradient && !node.is<Attention>()) return std::nullopt;
  const AttentionForm& form = is_gradient
                                  ? static_cast<const AttentionForm&>(node.op_as<AttentionGrad>())
                                  : node.op_as<Attention>();
  const size_t without_mask = form.operands() + (is_gradient ? 3 : 0);
  const DType dtype = node.inputs[0].type().dtype;
  if (!has_16_bits(dtype) || node.inputs.size() != without_mask) return std::nullopt;
  std::vector<TensorType> types;
  for (const Value& value : node.inputs) types.push_back(value.type());
  DnnAttention a{is_gradient, dtype, form.causal, form.scale, attention_layout(form, types)};
  const auto is_aligned = [](int64_t elements) { return elements * 2 % kRowAlignment == 0; };
  if (!is_aligned(a.layout.depth) || !is_aligned(a.layout.width)) return std::nullopt;
  // The library's gradient wants more than one score.
  if (is_gradient && a.layout.queries == 1 && a.layout.keys == 1) return std::nullopt;
  return a;
}

DnnGraphRef attention_graph(const Dnn& dnn, const DnnAttention& a) {
  DnnGraphBuilder builder(dnn);
  const AttentionLayout& l = a.layout;
  const auto heads = [&](DnnTensorId id,
                         const HeadLayout& at,
                         int64_t rows,
                         int64_t width) -> const DnnDescriptor& {
    return builder.tensor(id,
                          {dnn_type(a.dtype),
                           {l.batch, l.heads, rows, width},
                           {at.batch_stride, at.head_stride, at.row_stride, 1},
                           kRowAlignment});
  };
  const DnnDescriptor& q = heads(DnnTensorId::kQ, l.q, l.queries, l.depth);
  const DnnDescriptor& k = heads(DnnTensorId::kK, l.k, l.keys, l.depth);
  const DnnDescriptor& v = heads(DnnTensorId::kV, l.v, l.keys, l.width);
  const DnnDescriptor& y = heads(DnnTensorId::kY, l.y, l.queries, l.width);
  const DnnDescriptor& stats = builder.tensor(DnnTensorId::kStats,
                                              {DnnDataType::kF32,
                                               {l.batch, l.heads, l.queries, 1},
                                               {l.heads * l.queries, l.queries, 1, 1}});
  const DnnDescriptor& scale = builder.scalar(DnnTensorId::kScale);

  // Scores above the diagonal become what `fill` says, on their way to the softmax.
  const DnnDescriptor* masking = nullptr;
  if (a.causal) {
    const TensorText scores{DnnDataType::kF32,
                            {l.batch, l.heads, l.queries, l.keys},
                            {l.heads * l.queries * l.keys, l.queries * l.keys, l.keys, 1}};
    const DnnDescriptor& before = builder.virtual_tensor(DnnTensorId::kScores, scores);
    const DnnDescriptor& after = builder.virtual_tensor(DnnTensorId::kMaskedScores, scores);
    const DnnDescriptor& fill = builder.scalar(DnnTensorId::kFill);
    DnnDescriptor& mask = builder.add(DnnKind::kDiagonalBandMask);
    mask.set(kMaskX, before);
    mask.set(kMaskFill, fill);
    mask.set(kMaskY, after);
    mask.set(kMaskComparison, DnnPointwiseMode::kGreaterOrEqual);
    mask.finalize();
    masking = &builder.graph_of(mask);
  }
  const auto mask_by =
      [&](DnnDescriptor& operation, DnnAttribute graph, DnnAttribute input, DnnAttribute output) {
        if (masking == nullptr) return;
        operation.set(graph, *masking);
        operation.set(input, static_cast<int64_t>(DnnTensorId::kScores));
        operation.set(output, static_cast<int64_t>(DnnTensorId::kMaskedScores));
      };

  if (!a.is_gradient) {
    DnnDescriptor& operation = builder.add(DnnKind::kAttention);
    operation.set(kAttentionQ, q);
    operation.set(kAttentionK, k);
    operation.set(kAttentionV, v);
    operation.set(kAttentionY, y);
    operation.set(kAttentionStats, stats);
    operation.set(kAttentionScale, scale);
    mask_by(operation, kAttentionSubgraph, kAttentionSubgraphInput, kAttentionSubgraphOutput);
    operation.finalize();
    return builder.finish(operation);
  }
  const DnnDescriptor& dy = heads(DnnTensorId::kDy, l.y, l.queries, l.width);
  const DnnDescriptor& dq = heads(DnnTensorId::kDq, l.q, l.queries, l.depth);
  const DnnDescriptor& dk = heads(DnnTensorId::kDk, l.k, l.keys, l.depth);
  const DnnDescriptor& dv = heads(DnnTensorId::kDv, l.v, l.keys, l.width);
  DnnDescriptor& operation = builder.add(DnnKind::kAttentionGrad);
  operation.set(kAttentionGradQ, q);
  operation.set(kAttentionGradK, k);
  operation.set(kAttentionGradV, v);
  operation.set(kAttentionGradY, y);
  operation.set(kAttentionGradStats, stats);
  operation.set(kAttentionGradScale, scale);
  operation.set(kAttentionGradDy, dy);
  operation.set(kAttentionGradDq, dq);
  operation.set(kAttentionGradDk, dk);
  operation.set(kAttentionGradDv, dv);
  mask_by(
      operation, kAttentionGradSubgraph, kAttentionGradSubgraphInput, kAttentionGradSubgraphOutput);
  operation.finalize();
  return builder.finish(operation);
}

}  // namespace ridge::cuda
