#include "ridge/backend/cuda/dnn/graph.h"

#include "ridge/base/alignment.h"

namespace ridge::cuda {

using enum DnnAttribute;

namespace {

constexpr int64_t kRowAlignment = 16;  // bytes, for rows of heads in a packed projection

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
    DnnDescriptor& made = start_tensor(static_cast<int64_t>(id), text);
    made.finalize();
    return made;
  }
  /// A tensor that passes between operations, and is never in memory.
  const DnnDescriptor& virtual_tensor(const TensorText& text) {
    DnnDescriptor& made = start_tensor(next_virtual_++, text);
    made.set(kTensorIsVirtual, true);
    made.finalize();
    return made;
  }
  /// One f32 of the host's, read when a launch is queued.
  const DnnDescriptor& scalar(DnnTensorId id) {
    DnnDescriptor& made = start_tensor(
        static_cast<int64_t>(id),
        {DnnDataType::kF32, {1, 1, 1, 1}, {1, 1, 1, 1}, static_cast<int64_t>(sizeof(float))});
    made.set(kTensorIsByValue, true);
    made.finalize();
    return made;
  }

  // ---- operations: each gives back the tensor `to`, where its result goes ----

  DnnDescriptor& start_operation(DnnKind kind) {
    DnnDescriptor& made = add(kind);
    operations_.push_back(made.handle());
    return made;
  }
  struct Pointwise {
    DnnPointwiseMode mode;
    const DnnDescriptor& x;
    const DnnDescriptor *b = nullptr, *t = nullptr;
    DnnDataType type = DnnDataType::kF32;
    std::optional<int64_t> axis = {};
  };
  const DnnDescriptor& pointwise(const DnnDescriptor& to, const Pointwise& p) {
    DnnDescriptor& how = add(DnnKind::kPointwise);
    how.set(kPointwiseMode, p.mode);
    how.set(kPointwiseComputeType, p.type);
    if (p.axis) how.set(kPointwiseAxis, *p.axis);
    how.finalize();
    DnnDescriptor& made = start_operation(DnnKind::kPointwiseOperation);
    made.set(kPointwiseDescriptor, how);
    made.set(kPointwiseX, p.x);
    if (p.b != nullptr) made.set(kPointwiseB, *p.b);
    if (p.t != nullptr) made.set(kPointwiseT, *p.t);
    made.set(kPointwiseY, to);
    made.finalize();
    return to;
  }
  const DnnDescriptor& reduce(const DnnDescriptor& to, DnnReduction by, const DnnDescriptor& x) {
    DnnDescriptor& how = add(DnnKind::kReduction);
    how.set(DnnAttribute::kReductionOperator, by);
    how.set(kReductionCompType, DnnDataType::kF32);
    how.finalize();
    DnnDescriptor& made = start_operation(DnnKind::kReductionOperation);
    made.set(kReductionDescriptor, how);
    made.set(kReductionX, x);
    made.set(kReductionY, to);
    made.finalize();
    return to;
  }
  const DnnDescriptor& matmul(const DnnDescriptor& to,
                              const DnnDescriptor& a,
                              const DnnDescriptor& b) {
    DnnDescriptor& how = add(DnnKind::kMatmul);
    how.set(kMatmulComputeType, DnnDataType::kF32);
    how.finalize();
    DnnDescriptor& made = start_operation(DnnKind::kMatmulOperation);
    made.set(kMatmulDescriptor, how);
    made.set(kMatmulA, a);
    made.set(kMatmulB, b);
    made.set(kMatmulC, to);
    made.finalize();
    return to;
  }
  /// The same elements in the same places, by other sizes and strides.
  const DnnDescriptor& reshape(const DnnDescriptor& to, const DnnDescriptor& x) {
    DnnDescriptor& made = start_operation(DnnKind::kReshapeOperation);
    made.set(kReshapeX, x);
    made.set(kReshapeY, to);
    made.finalize();
    return to;
  }

  DnnGraphRef finish() {
    DnnDescriptor& made = add(DnnKind::kGraph);
    dnn_.aim(made, kGraphHandle, std::nullopt);
    made.set_all(kGraphOperations, std::span<const DnnDescriptorHandle>(operations_));
    made.finalize();
    return std::move(graph_);
  }

 private:
  DnnDescriptor& start_tensor(int64_t id, const TensorText& text) {
    DnnDescriptor& made = add(DnnKind::kTensor);
    made.set(kTensorUniqueId, id);
    made.set(kTensorDataType, text.type);
    made.set(kTensorDimensions, text.sizes);
    made.set(kTensorStrides, text.strides);
    made.set(kTensorByteAlignment, text.alignment);
    return made;
  }

  const Dnn& dnn_;
  std::shared_ptr<DnnGraph> graph_;
  std::vector<DnnDescriptorHandle> operations_;
  int64_t next_virtual_ = static_cast<int64_t>(DnnTensorId::kFirstVirtual);
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
  DnnDescriptor& operation = builder.start_operation(c.kind);
  operation.set(at.convolution, convolution);
  operation.set(at.x, x);
  operation.set(at.w, w);
  operation.set(at.y, y);
  operation.set(at.alpha, 1.0F);
  operation.set(at.beta, 0.0F);
  operation.finalize();
  return builder.finish();
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
  if (!has_16_bits(dtype) || form.by_token || node.inputs.size() != without_mask)
    return std::nullopt;
  std::vector<TensorType> types;
  for (const Value& value : node.inputs) types.push_back(value.type());
  DnnAttention a{is_gradient, dtype, form.causal, form.scale, attention_layout(form, types)};
  const auto is_aligned = [](int64_t elements) { return elements * 2 % kRowAlignment == 0; };
  if (!is_aligned(a.layout.depth) || !is_aligned(a.layout.width)) return std::nullopt;
  // The library's gradient wants more than one score.
  if (is_gradient && a.layout.queries == 1 && a.layout.keys == 1) return std::nullopt;
  return a;
}

namespace {

// The graphs that the library's engines of attention look for: what is added, left out or done in
// another order is refused, or goes through memory. Every cuDNN 9 takes these graphs: 9.19 and 9.28
// made plans for them, 9.1 and 9.10 accepted them.
class AttentionGraph {
 public:
  AttentionGraph(const Dnn& dnn, const DnnAttention& a) : builder_(dnn), a_(a), l_(a.layout) {}

  // y = softmax(scores) v, and the logarithm of the sum of each row's exponentials.
  DnnGraphRef forward() {
    using enum DnnPointwiseMode;
    const DnnDescriptor& s = masked_scores(heads(DnnTensorId::kQ, l_.q, l_.queries, l_.depth),
                                           transposed_heads(DnnTensorId::kK, l_.k, l_.depth));
    const DnnDescriptor& most = builder_.reduce(row(), DnnReduction::kMax, s);
    const DnnDescriptor& above = builder_.pointwise(scores(), {kSubtract, s, &most});
    const DnnDescriptor& weights = builder_.pointwise(scores(), {kExp, above});
    const DnnDescriptor& sum = builder_.reduce(row(), DnnReduction::kAdd, weights);
    const DnnDescriptor& log = builder_.pointwise(row(), {kLog, sum});
    builder_.pointwise(stats(), {kAdd, most, &log});
    builder_.matmul(heads(DnnTensorId::kY, l_.y, l_.queries, l_.width),
                    builder_.pointwise(scores(type()), {kDivide, weights, &sum}),
                    heads(DnnTensorId::kV, l_.v, l_.keys, l_.width));
    return builder_.finish();
  }

  // dq is no sum of partial results: that makes engines write the gradient of the scores to memory,
  // and multiply it by k in a kernel of its own. Else they would add to sums in f32 in the order of
  // arrival, which gives other bits in another run.
  DnnGraphRef backward() {
    using enum DnnPointwiseMode;
    const DnnDescriptor& q = heads(DnnTensorId::kQ, l_.q, l_.queries, l_.depth);
    const DnnDescriptor& k = transposed_heads(DnnTensorId::kK, l_.k, l_.depth);
    const DnnDescriptor& y = heads(DnnTensorId::kY, l_.y, l_.queries, l_.width);
    const DnnDescriptor& dy = heads(DnnTensorId::kDy, l_.y, l_.queries, l_.width);
    const DnnDescriptor& products =
        builder_.pointwise(inside(l_.queries, l_.width), {kMultiply, dy, &y});
    // Without the factor, which is 1, scores in f32 go through memory.
    const DnnDescriptor& inner =
        builder_.pointwise(row(),
                           {kMultiply,
                            builder_.reduce(row(), DnnReduction::kAdd, products),
                            &builder_.scalar(DnnTensorId::kDropoutScale)});
    const DnnDescriptor& above =
        builder_.pointwise(scores(), {kSubtract, masked_scores(q, k), &stats()});
    const DnnDescriptor& weights = builder_.pointwise(scores(), {kExp, above});
    builder_.matmul(heads(DnnTensorId::kDv, l_.v, l_.keys, l_.width), transposed(weights), dy);
    const DnnDescriptor& dweights =
        builder_.matmul(scores(), dy, transposed_heads(DnnTensorId::kV, l_.v, l_.width));
    const DnnDescriptor& centred = builder_.pointwise(scores(), {kSubtract, dweights, &inner});
    const DnnDescriptor& weighted = builder_.pointwise(scores(), {kMultiply, centred, &weights});
    const DnnDescriptor& ds = builder_.pointwise(scores(type()), {kMultiply, weighted, scale_});
    const DnnDescriptor& keys =
        builder_.reshape(builder_.virtual_tensor(head_text(l_.k, l_.keys, l_.depth)), k);
    builder_.matmul(heads(DnnTensorId::kDq, l_.q, l_.queries, l_.depth), ds, keys);
    builder_.matmul(heads(DnnTensorId::kDk, l_.k, l_.keys, l_.depth), transposed(ds), q);
    return builder_.finish();
  }

 private:
  DnnDataType type() const { return dnn_type(a_.dtype); }

  // (B, H, rows, columns), without gaps.
  const DnnDescriptor& inside(int64_t rows, int64_t columns, DnnDataType type = DnnDataType::kF32) {
    return builder_.virtual_tensor({type,
                                    {l_.batch, l_.heads, rows, columns},
                                    {l_.heads * rows * columns, rows * columns, columns, 1}});
  }
  const DnnDescriptor& scores(DnnDataType type = DnnDataType::kF32) {
    return inside(l_.queries, l_.keys, type);
  }
  const DnnDescriptor& row() { return inside(l_.queries, 1); }
  // In 16 bits, as tensor cores take them.
  const DnnDescriptor& transposed(const DnnDescriptor& of) {
    const int64_t size = l_.queries * l_.keys;
    return builder_.reshape(builder_.virtual_tensor({type(),
                                                     {l_.batch, l_.heads, l_.keys, l_.queries},
                                                     {l_.heads * size, size, 1, l_.keys}}),
                            of);
  }

  TensorText head_text(const HeadLayout& at, int64_t rows, int64_t width) const {
    return {type(),
            {l_.batch, l_.heads, rows, width},
            {at.batch_stride, at.head_stride, at.row_stride, 1},
            kRowAlignment};
  }
  const DnnDescriptor& heads(DnnTensorId id, const HeadLayout& at, int64_t rows, int64_t width) {
    return builder_.tensor(id, head_text(at, rows, width));
  }
  // (B, H, width, keys)
  const DnnDescriptor& transposed_heads(DnnTensorId id, const HeadLayout& at, int64_t width) {
    TensorText text = head_text(at, l_.keys, width);
    std::swap(text.sizes[2], text.sizes[3]);
    std::swap(text.strides[2], text.strides[3]);
    return builder_.tensor(id, text);
  }
  const DnnDescriptor& stats() {
    return builder_.tensor(DnnTensorId::kStats,
                           {DnnDataType::kF32,
                            {l_.batch, l_.heads, l_.queries, 1},
                            {l_.heads * l_.queries, l_.queries, 1, 1}});
  }

  // Those of keys behind the query become what kFill says.
  const DnnDescriptor& masked_scores(const DnnDescriptor& q, const DnnDescriptor& k) {
    using enum DnnPointwiseMode;
    scale_ = &builder_.scalar(DnnTensorId::kScale);
    const DnnDescriptor& s =
        builder_.pointwise(scores(), {kMultiply, builder_.matmul(scores(), q, k), scale_});
    if (!a_.causal) return s;
    const auto place = [&](int64_t axis) -> const DnnDescriptor& {
      return builder_.pointwise(scores(DnnDataType::kI32),
                                {.mode = kIndex, .x = s, .type = DnnDataType::kI32, .axis = axis});
    };
    const DnnDescriptor &query = place(2), &key = place(3);
    const DnnDescriptor& is_seen = builder_.pointwise(
        scores(DnnDataType::kBoolean),
        {.mode = kGreaterOrEqual, .x = query, .b = &key, .type = DnnDataType::kBoolean});
    return builder_.pointwise(scores(),
                              {kSelect, s, &builder_.scalar(DnnTensorId::kFill), &is_seen});
  }

  DnnGraphBuilder builder_;
  const DnnAttention& a_;
  const AttentionLayout& l_;
  const DnnDescriptor* scale_ = nullptr;
};

}  // namespace

DnnGraphRef attention_graph(const Dnn& dnn, const DnnAttention& a) {
  AttentionGraph graph(dnn, a);
  return a.is_gradient ? graph.backward() : graph.forward();
}

}  // namespace ridge::cuda
