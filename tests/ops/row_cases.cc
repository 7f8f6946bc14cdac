// Samples of the ops that work on rows and columns: softmax, losses, norms, pooling, lookups,
// dropout.
#include "ridge/graph/ops/batch_norm.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/norm.h"
#include "ridge/graph/ops/pool.h"
#include "ridge/graph/ops/random.h"
#include "ridge/graph/ops/softmax.h"
#include "tests/support/op_audit.h"

namespace ridge::test {
namespace {

OpSample entropy(std::string label, DType target, CrossEntropyOptions options) {
  return {"cross_entropy", std::move(label), [=](CaseBuilder& b) -> std::vector<Value> {
            const Value logits = b.input({3, 4, 7}, -3.0, 3.0);
            const Value targets = b.given({target, {3, 4}}, {0, 1, 2, 3, 4, 5, 6, 2, 2, 0, 6, 1});
            return {cross_entropy(logits, targets, options)};
          }};
}

const OpSamples kSoftmax({
    {"softmax",
     "rows",
     [](CaseBuilder& b) -> std::vector<Value> { return {softmax(b.input({4, 37}, -5.0, 5.0))}; }},
    {"softmax",
     "other axis",
     [](CaseBuilder& b) -> std::vector<Value> { return {softmax(b.input({3, 6, 2}), 1)}; }},
    {"log_softmax",
     "rows",
     [](CaseBuilder& b) -> std::vector<Value> {
       return {log_softmax(b.input({4, 37}, -5.0, 5.0))};
     }},
    entropy("plain", DType::kI64, {}),
    entropy("ignored and smoothed", DType::kI32, {.ignore_index = 2, .label_smoothing = 0.1}),
});

// z = normal * gamma + beta lies well away from the kinks at 0 and 6, on all three sides of them.
OpSample activated_batch_norm(NormActivation activation) {
  return {"batch_norm", "activated", [=](CaseBuilder& b) -> std::vector<Value> {
            const Value x = b.separated({13, 7});
            const Value gamma = b.given({b.dtype(), {7}}, {0.1, 0.1, 0.1, 3.0, 0.2, 0.5, 0.25});
            const Value beta = b.given({b.dtype(), {7}}, {3.0, -1.0, 8.0, 3.2, 1.0, 3.0, -2.0});
            return {batch_norm(x, gamma, beta, 1e-3, activation).y};
          }};
}

OpSample batch_norm_gradient(std::string activation) {
  return {"batch_norm_grad", activation, [=](CaseBuilder& b) -> std::vector<Value> {
            const Value x = b.separated({3, 5, 7});
            const Value gamma = b.given({b.dtype(), {7}}, {0.1, 0.1, 0.1, 3.0, 0.2, 0.5, 0.25});
            const Value beta = b.given({b.dtype(), {7}}, {3.0, -1.0, 8.0, 3.2, 1.0, 3.0, -2.0});
            BatchNormGrad op;
            op.activation = activation;
            const Value dx = add_node(
                std::move(op),
                {x, gamma, beta, b.input({7}), b.input({7}, 0.5, 2.0), b.input({3, 5, 7})});
            return {dx, {dx.node, 1}, {dx.node, 2}};
          }};
}

const OpSamples kNorms({
    {"layer_norm",
     "rows",
     [](CaseBuilder& b) -> std::vector<Value> {
       return {layer_norm(b.input({3, 4, 21}), b.input({21}), b.input({21}))};
     }},
    {"rms_norm",
     "rows",
     [](CaseBuilder& b) -> std::vector<Value> {
       return {rms_norm(b.input({3, 4, 21}), b.input({21}))};
     }},
    {"batch_norm",
     "images",
     [](CaseBuilder& b) -> std::vector<Value> {
       const auto r = batch_norm(b.input({3, 4, 5, 6}), b.input({6}), b.input({6}));
       return {r.y, r.mean, r.variance};
     }},
    activated_batch_norm(NormActivation::kRelu),
    activated_batch_norm(NormActivation::kRelu6),
    batch_norm_gradient("none"),
    batch_norm_gradient("relu"),
    batch_norm_gradient("relu6"),
    {"batch_norm_stats",
     "images",
     [](CaseBuilder& b) -> std::vector<Value> {
       const Value mean =
           add_node(BatchNormStats{}, {b.input({3, 4, 5, 6}), b.input({6}), b.input({6})});
       return {mean, {mean.node, 1}, {mean.node, 2}, {mean.node, 3}};
     }},
});

OpSample max_pool(std::string label, Shape x, PoolFields pool) {
  return {"max_pool2d", std::move(label), [=](CaseBuilder& b) -> std::vector<Value> {
            return {max_pool2d(b.separated(x), pool)};
          }};
}

std::vector<Value> max_pool_gradient(CaseBuilder& b) {
  MaxPool2dGrad op;
  op.pool = {{3, 2}, {{2, 1}, {1, 0, 1, 1}, {1, 1}}};
  const Value x = b.separated({2, 6, 5, 3});
  return {add_node(std::move(op), {x, b.input({2, 3, 5, 3})})};
}

std::vector<Value> avg_pool_gradient(CaseBuilder& b) {
  AvgPool2dGrad op;
  op.pool = {{3, 2}, {{2, 1}, {1, 0, 1, 1}, {1, 1}}};
  op.count_padding = false;
  op.size = {6, 5};
  return {add_node(std::move(op), {b.input({2, 3, 5, 3})})};
}

OpSample average(std::string label, PoolFields pool, bool count_padding) {
  return {"avg_pool2d", std::move(label), [=](CaseBuilder& b) -> std::vector<Value> {
            return {avg_pool2d(b.input({2, 6, 5, 3}), pool, count_padding)};
          }};
}

const OpSamples kPools({
    max_pool("2x2", {2, 6, 4, 3}, {{2, 2}, {{2, 2}, {0, 0, 0, 0}, {1, 1}}}),
    max_pool("overlapping, padded", {1, 7, 6, 2}, {{3, 3}, {{2, 1}, {1, 1, 1, 0}, {1, 1}}}),
    {"max_pool2d_grad", "overlapping, padded", max_pool_gradient},
    average("2x2", {{2, 2}, {{2, 2}, {0, 0, 0, 0}, {1, 1}}}, true),
    average("padding counted", {{3, 2}, {{2, 1}, {1, 0, 1, 1}, {1, 1}}}, true),
    average("padding not counted", {{3, 2}, {{2, 1}, {1, 0, 1, 1}, {1, 1}}}, false),
    {"avg_pool2d_grad", "overlapping, padded", avg_pool_gradient},
});

const OpSamples kLookups({
    {"gather",
     "rows",
     [](CaseBuilder& b) -> std::vector<Value> {
       return {embedding(b.input({9, 5}), b.indices(DType::kI64, {3, 4}, 0, 8))};
     }},
    {"gather",
     "middle axis",
     [](CaseBuilder& b) -> std::vector<Value> {
       return {gather(b.input({2, 6, 3}), b.indices(DType::kI32, {5}, 0, 5), 1)};
     }},
    {"scatter_add",
     "rows, repeated",
     [](CaseBuilder& b) -> std::vector<Value> {
       return {scatter_add(b.input({3, 4, 5}), b.indices(DType::kI64, {3, 4}, 0, 3), 0, 6)};
     }},
    {"scatter_add",
     "middle axis",
     [](CaseBuilder& b) -> std::vector<Value> {
       return {scatter_add(b.input({2, 5, 3}), b.indices(DType::kI32, {5}, 0, 6), 1, 7)};
     }},
    {"scatter_add",
     "to what is there",
     [](CaseBuilder& b) -> std::vector<Value> {
       return {scatter_add_to(
           b.input({6, 5}), b.input({3, 4, 5}), b.indices(DType::kI64, {3, 4}, 0, 3), 0)};
     }},
    {"pick",
     "rows",
     [](CaseBuilder& b) -> std::vector<Value> {
       return {pick(b.input({3, 2, 5}), b.indices(DType::kI64, {3, 2}, 0, 4)),
               pick(b.input({4}), b.indices(DType::kI32, {}, 0, 3))};
     }},
    {"pick",
     "limited",
     [](CaseBuilder& b) -> std::vector<Value> {
       Pick op;
       op.limit = 3;
       return {add_node(std::move(op), {b.input({3, 2, 5}), b.indices(DType::kI64, {3, 2}, 0, 2)})};
     }},
    {"one_hot",
     "some out of range",
     [](CaseBuilder& b) -> std::vector<Value> {
       const Value indices = b.given({b.dtype(), {5}}, {0, 3, -1, 4, 2});
       return {
           one_hot(indices, 4), one_hot(indices, 4, DType::kF64), one_hot(indices, 4, DType::kI8)};
     }},
});

OpSample drop(std::string label, Shape shape, int64_t samples, double first_sample) {
  return {"dropout", std::move(label), [=](CaseBuilder& b) -> std::vector<Value> {
            const Value rng = b.given({DType::kI64, {3}}, {1234, 56, first_sample});
            return {dropout(b.input(shape, 0.5, 2.0), rng, 0.3, samples)};
          }};
}

const OpSamples kDropout({
    drop("first micro-batch", {4, 33}, 4, 0),
    drop("later micro-batch, odd offset", {6, 5, 3}, 2, 7),
});

}  // namespace
}  // namespace ridge::test
