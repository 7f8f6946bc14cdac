// Scaled-dot-product attention and its gradient.
#pragma once

#include <vector>

#include "ridge/graph/graph.h"

namespace ridge {

/// The fields that both ops share, and the form of their operands.
///
/// Separate (heads = 0): q (B, H, T, D), k (B, H, S, D), v (B, H, S, E), y (B, H, T, E).
/// By token (heads = 0): q (B, T, H, D), k (B, S, H, D), v (B, S, H, E), y (B, T, H, E), as
/// projections write and read them.
/// Packed (heads = H): qkv (B, T, 3 H D), for each token its queries, keys and values one head
/// after the other, and y (B, T, H D): a projection writes that form and the next one reads it.
struct AttentionForm {
  bool causal = false;
  double scale = 1.0;
  int64_t heads = 0;
  bool by_token = false;

  bool is_packed() const { return heads != 0; }
  /// Tensors that q, k and v come in.
  size_t operands() const { return is_packed() ? 1 : 3; }
  void visit_fields(FieldVisitor& v);
};

/// The place of the elements of one of q, k, v, y: (batch, head, row, i) lies at
/// begin + batch * batch_stride + head * head_stride + row * row_stride + i.
struct HeadLayout {
  int64_t begin = 0;
  int64_t batch_stride = 0, head_stride = 0, row_stride = 0;
};

/// The sizes of an attention and where its operands lie.
struct AttentionLayout {
  int64_t batch = 0, heads = 0;
  int64_t queries = 0, keys = 0;  ///< T, S
  int64_t depth = 0, width = 0;   ///< D, E
  HeadLayout q, k, v, y;

  Shape scores() const { return {batch, heads, queries, keys}; }
};

/// For operands that infer() has accepted: `inputs` begins with qkv, or q, k and v.
AttentionLayout attention_layout(const AttentionForm& form, std::span<const TensorType> inputs);

/// The number of the input that is a bias, and of that which is a mask of bool; 0: there is none.
/// `first` is the number of inputs before it.
size_t bias_input(std::span<const TensorType> inputs, size_t first);
size_t mask_input(std::span<const TensorType> inputs, size_t first);

/// The dtype of a row's logsumexp: f64 for f64, f32 for all others.
DType logsumexp_dtype(DType dtype);

/// q, k, v or qkv [, mask (B or 1, H or 1, T or 1, S)] -> y, logsumexp (B, H, T): softmax(scores) v
/// over the allowed keys, with scores = scale q k^T (Vaswani et al., "Attention is all you need",
/// 2017), and log(sum(exp(scores))) over them. `causal` allows query t the keys 0..t. A mask of
/// bool says which keys a query may attend to; a query without one gives zeros, and 0 for its
/// logsumexp. What a forbidden key and its value hold must be finite. A mask of the dtype of q is a
/// bias: it is added to the scores, and forbids nothing.
class Attention final : public OpOf<Attention>, public AttentionForm {
 public:
  static constexpr OpTraits kTraits{.name = "attention",
                                    .min_inputs = 1,
                                    .max_inputs = 4,
                                    .dtypes = kFloats,
                                    .op_class = OpClass::kContraction,
                                    .gradient = Gradient::kRule};

  std::vector<TensorType> infer(std::span<const TensorType> inputs) const override;
  std::vector<Value> vjp(const VjpContext& c) const override;
  std::vector<Value> expand(std::span<const Value> inputs) const override;
  Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<BatchFlow> batch_flow(const BatchFlowContext& c) const override;
  void fields(FieldVisitor& v) override { visit_fields(v); }
};

/// q, k, v or qkv, then y, logsumexp and dy [, mask of bool] -> dq, dk, dv or dqkv: the gradient of
/// attention, with the weights computed again as exp(scale q k^T - logsumexp) (Dao et al.,
/// "FlashAttention", 2022). That of attention with a bias is one of its plain form.
class AttentionGrad final : public OpOf<AttentionGrad>, public AttentionForm {
 public:
  static constexpr OpTraits kTraits{.name = "attention_grad",
                                    .min_inputs = 4,
                                    .max_inputs = 7,
                                    .dtypes = kFloats,
                                    .op_class = OpClass::kContraction,
                                    .gradient = Gradient::kExpand};

  std::vector<TensorType> infer(std::span<const TensorType> inputs) const override;
  std::vector<Value> expand(std::span<const Value> inputs) const override;
  Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<BatchFlow> batch_flow(const BatchFlowContext& c) const override;
  void fields(FieldVisitor& v) override { visit_fields(v); }
};

struct AttentionOptions {
  bool causal = false;
  double scale = 0.0;  ///< 0: 1 / sqrt(D).
  Value mask = {};     ///< A mask of bool, or a bias.
  bool by_token = false;
};

/// y of the separate form, or of that by token.
Value attention(Value q, Value k, Value v, AttentionOptions options = {});
/// y (B, T, H D) of the packed form.
Value packed_attention(Value qkv, int64_t heads, AttentionOptions options = {});

}  // namespace ridge
