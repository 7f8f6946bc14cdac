#include "ridge/nn/loss.h"

#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/softmax.h"

namespace ridge::nn {
namespace {

Value count_true(Value condition, DType dtype) { return reduce_sum(cast(condition, dtype)); }

Value index_labels(Value labels) {
  return kIndices.has(labels.dtype()) ? labels : cast(labels, DType::kI64);
}

}  // namespace

LossSums cross_entropy_sums(Value logits, Value labels) {
  const DType dtype = accumulate_dtype(logits.dtype());
  labels = index_labels(labels);
  const SiteScope scope(logits.graph(), "loss");
  const Value each = cross_entropy(cast(logits, dtype), labels, {.ignore_index = kIgnoreLabel});
  return {reduce_sum(each), count_targets(labels, dtype, kIgnoreLabel)};
}

LossSums squared_error_sums(Value predictions, Value targets) {
  const DType dtype = accumulate_dtype(predictions.dtype());
  const SiteScope scope(predictions.graph(), "loss");
  targets = reshape(cast(targets, dtype), predictions.shape());
  const Value error = cast(predictions, dtype) - targets;
  // A target that is not finite makes the loss so: counting the finite ones counts them all, and,
  // unlike a constant, follows the batch.
  return {reduce_sum(error * error), count_true(is_finite(targets), dtype)};
}

LossSums loss_sums(const Model& model, Value logits, Value y) {
  return model.sample().regression() ? squared_error_sums(logits, y)
                                     : cross_entropy_sums(logits, y);
}

Value count_correct(Value logits, Value labels) {
  labels = index_labels(labels);
  const SiteScope scope(logits.graph(), "loss");
  const Value guess = cast(argmax(logits, -1), labels.dtype());
  return count_true(eq(guess, labels), accumulate_dtype(logits.dtype()));
}

}  // namespace ridge::nn
