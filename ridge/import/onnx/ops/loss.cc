// Losses.
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/softmax.h"
#include "ridge/graph/ops/source.h"
#include "ridge/import/builders/indexing.h"
#include "ridge/import/onnx/node_context.h"
#include "ridge/import/onnx/op_table.h"

namespace ridge::onnx {
namespace {

// The loss of logarithms of probabilities (N, C, ...) against classes (N, ...) [, weights (C)].
void give_loss(NodeContext& n, Value logarithms) {
  check(logarithms.rank() >= 2, "its input has {} dimensions", logarithms.rank());
  const Value rows = axis_to_end(logarithms, 1);
  const int64_t classes = rows.dim(rows.rank() - 1);
  Value target = cast(n.value(1), DType::kI64);
  const Value zero = constant_like(target, 0.0);
  Value weight;  // of each target; null: 1
  if (n.has_attribute("ignore_index")) {
    const Value ignored =
        eq(target, constant_like(target, static_cast<double>(n.integer("ignore_index"))));
    target = where(ignored, zero, target);
    weight = cast(logical_not(ignored), rows.dtype());
  }
  if (n.has(2)) {
    check(n.shape(2) == Shape{classes}, "its weights are {}", to_string(n.shape(2)));
    const Value given = gather(n.value(2), target, 0);
    weight = weight ? weight * given : given;
  }
  Value loss = neg(pick(rows, target));
  if (weight) loss = loss * weight;
  const std::string reduction = n.text("reduction", "mean");
  if (reduction == "none") return n.give(0, loss);
  const Value sum = reduce_sum(loss);
  if (reduction == "sum") return n.give(0, sum);
  check(reduction == "mean", "reduction '{}' is not known", reduction);
  n.give(0, weight ? sum / reduce_sum(weight) : reduce_mean(loss));
}

void negative_log_likelihood(NodeContext& n) { give_loss(n, n.value(0)); }

void softmax_cross_entropy(NodeContext& n) {
  const Value logarithms = log_softmax(n.value(0), 1);
  give_loss(n, logarithms);
  if (n.wants(1)) n.give(1, logarithms);
}

constexpr OpRow kLossOps[] = {
    {"NegativeLogLikelihoodLoss", negative_log_likelihood, 12},
    {"SoftmaxCrossEntropyLoss", softmax_cross_entropy, 12},
};

}  // namespace

std::span<const OpRow> loss_ops() { return kLossOps; }

}  // namespace ridge::onnx
