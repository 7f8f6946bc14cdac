// Softmax, log-softmax and cross-entropy over the last axis.
#pragma once

#include <vector>

#include "ridge/graph/graph.h"

namespace ridge {

constexpr OpTraits softmax_traits(std::string_view name, int inputs) {
  return {.name = name,
          .min_inputs = inputs,
          .max_inputs = inputs,
          .dtypes = kFloats,
          .op_class = OpClass::kReduction,
          .gradient = Gradient::kRule};
}

/// exp(x - max) / sum, over the last axis.
class Softmax final : public OpOf<Softmax> {
 public:
  static constexpr OpTraits kTraits = softmax_traits("softmax", 1);
  std::vector<TensorType> infer(std::span<const TensorType> inputs) const override;
  std::vector<Value> vjp(const VjpContext& c) const override;
  std::vector<Value> expand(std::span<const Value> inputs) const override;
  Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<BatchFlow> batch_flow(const BatchFlowContext& c) const override;
};

/// x - max - log(sum exp(x - max)), over the last axis.
class LogSoftmax final : public OpOf<LogSoftmax> {
 public:
  static constexpr OpTraits kTraits = softmax_traits("log_softmax", 1);
  std::vector<TensorType> infer(std::span<const TensorType> inputs) const override;
  std::vector<Value> vjp(const VjpContext& c) const override;
  std::vector<Value> expand(std::span<const Value> inputs) const override;
  Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<BatchFlow> batch_flow(const BatchFlowContext& c) const override;
};

/// logits (..., C), targets (...) i64 or i32 -> loss (...): the cross-entropy of each row against
/// (1 - label_smoothing) one_hot(target) + label_smoothing / C, and 0 where target is ignore_index.
/// Any other target outside [0, C) is a UserError at run time.
class CrossEntropy final : public OpOf<CrossEntropy> {
 public:
  static constexpr OpTraits kTraits = softmax_traits("cross_entropy", 2);
  int64_t ignore_index = -100;
  double label_smoothing = 0.0;

  std::vector<TensorType> infer(std::span<const TensorType> inputs) const override;
  std::vector<Value> vjp(const VjpContext& c) const override;
  std::vector<Value> expand(std::span<const Value> inputs) const override;
  Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<BatchFlow> batch_flow(const BatchFlowContext& c) const override;
  void fields(FieldVisitor& v) override;
};

// Builders: softmax and log_softmax move another axis to the end and back.
Value softmax(Value x, int64_t axis = -1);
Value log_softmax(Value x, int64_t axis = -1);

struct CrossEntropyOptions {
  int64_t ignore_index = -100;
  double label_smoothing = 0.0;
};

/// Loss per row, as CrossEntropy.
Value cross_entropy(Value logits, Value targets, CrossEntropyOptions options = {});
/// Number (scalar of `dtype`) of targets that are not ignored: a sum over samples, as the summed
/// loss is, so that both add up over micro-batches.
Value count_targets(Value targets, DType dtype, int64_t ignore_index = -100);

}  // namespace ridge
