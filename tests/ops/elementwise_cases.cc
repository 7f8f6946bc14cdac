#include "ridge/graph/ops/activation.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/fused.h"
#include "ridge/graph/ops/fused_each.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/graph/text.h"
#include "tests/support/op_audit.h"

namespace ridge::test {
namespace {

using Unary = Value (*)(Value);
using Binary = Value (*)(Value, Value);

// Values on both sides of zero and away from it: fit for kinks at zero.
OpSample kinked(std::string op, Unary build) {
  return {op, "separated", [=](CaseBuilder& b) -> std::vector<Value> {
            return {build(b.separated({3, 7}))};
          }};
}

OpSample smooth(std::string op, Unary build, double low = -2.0, double high = 2.0) {
  return {op, "smooth", [=](CaseBuilder& b) -> std::vector<Value> {
            return {build(b.input({3, 7}, low, high))};
          }};
}

OpSample binary(std::string op, Binary build) {
  return {op, "two inputs", [=](CaseBuilder& b) -> std::vector<Value> {
            return {build(b.input({3, 7}), b.input({3, 7}, 0.5, 2.0))};
          }};
}

// Distinct values in the two inputs, and some equal ones for integers.
OpSample compared(std::string op, Binary build) {
  return {op, "compared", [=](CaseBuilder& b) -> std::vector<Value> {
            return {build(b.separated({5, 9}), b.separated({5, 9}))};
          }};
}

std::vector<Value> cast_to_all(CaseBuilder& b) {
  const Value x = b.input({4, 5}, -3.0, 3.0);
  std::vector<Value> results;
  for (DType to : kAllDTypes)
    if (to != b.dtype()) results.push_back(cast(x, to));
  return results;
}

std::vector<Value> cast_f64(CaseBuilder& b) {
  const Value x = b.input(DType::kF64, {4, 5}, -3.0, 3.0);
  // To f32 the differences would be those of the rounding; f64 to f64 keeps the gradient exact.
  Cast op;
  op.to = DType::kF64;
  return {add_node(std::move(op), {x})};
}

std::vector<Value> where_all(CaseBuilder& b) {
  const Value condition = b.input(DType::kBool, {4, 6}, 0, 1);
  std::vector<Value> results;
  for (DType dtype : kAllDTypes)
    results.push_back(
        where(condition, b.input(dtype, {4, 6}, -2.0, 2.0), b.input(dtype, {4, 6}, -2.0, 2.0)));
  return results;
}

std::vector<Value> finite(CaseBuilder& b) {
  const double inf = std::numeric_limits<double>::infinity();
  return {is_finite(b.given({b.dtype(), {5}}, {0.0, inf, -inf, std::nan(""), 1.5}))};
}

// A body with a broadcast, two results, and an operand that is read twice.
// A softmax, the sum of its columns, and the mean of its row maxima.
std::vector<Value> fused_rows(CaseBuilder& b) {
  const Value x = b.input(DType::kF32, {2, 3, 7}, -2.0, 2.0);
  Graph body("fused");
  const Value row = input(body, "0", x.type());
  const Value e = exp(row - reduce_max(row, {2}, true));
  const Value sum = reduce_sum(e, {2}, true);
  body.add_output("0", e / sum);
  body.add_output("1", reduce_sum(e / sum, {0, 1}));
  body.add_output("2", reduce_mean(sum));
  Node& node = fused(b.graph(), body, {x}, b.graph().next_site("fused"), LoopDomain{42, 7});
  return {{&node, 0}, {&node, 1}, {&node, 2}};
}

std::vector<Value> fused_loop(CaseBuilder& b) {
  const Value x = b.input({3, 7}), row = b.input({7}, 0.5, 2.0);
  Graph body("fused");
  const Value x0 = input(body, "0", x.type());
  const Value row0 = broadcast(input(body, "1", row.type()), {3, 7});
  const bool logical = b.dtype() == DType::kBool;
  const Value first = logical ? logical_and(x0, row0) : x0 * row0;
  body.add_output("0", first);
  body.add_output("1", logical ? logical_or(first, x0) : first + x0);
  Node& node = fused(b.graph(), body, {x, row}, b.graph().next_site("fused"));
  return {{&node, 0}, {&node, 1}};
}

// One result of elements for each of three tensors, and a total where there may be one.
std::vector<Value> fused_list(CaseBuilder& b, bool has_totals) {
  std::vector<Value> inputs{b.input({})};
  for (const Shape& shape : {Shape{3, 7}, Shape{5}, Shape{2, 1, 2}})
    for (int i = 0; i < 2; ++i) inputs.push_back(b.input(shape));
  Graph body("each");
  const Value factor = broadcast(input(body, "0", {b.dtype(), {}}), {1});
  const Value x = input(body, "1", {b.dtype(), {1}}), y = input(body, "2", {b.dtype(), {1}});
  const bool logical = b.dtype() == DType::kBool;
  const Value first = logical ? logical_and(x, factor) : x * factor;
  body.add_output("0", first);
  body.add_output("1", logical ? logical_or(first, y) : first + y);
  if (has_totals) body.add_output("2", reduce_sum(first * y));
  FusedEach op;
  op.body = print(body);
  const Node& node = b.graph().add(std::make_shared<const FusedEach>(std::move(op)), inputs);
  std::vector<Value> results;
  for (size_t i = 0; i < node.outputs.size(); ++i)
    results.push_back({const_cast<Node*>(&node), static_cast<int>(i)});
  return results;
}

const OpSamples kSamples({
    smooth("neg", neg),
    kinked("abs", abs),
    kinked("sign", sign),
    smooth("exp", exp),
    smooth("log", log, 0.2, 3.0),
    smooth("sin", sin, -4.0, 4.0),
    smooth("cos", cos, -4.0, 4.0),
    smooth("tanh", tanh, -3.0, 3.0),
    smooth("erf", erf, -2.5, 2.5),
    smooth("sqrt", sqrt, 0.2, 3.0),
    smooth("rsqrt", rsqrt, 0.2, 3.0),
    smooth("sigmoid", sigmoid, -4.0, 4.0),
    kinked("relu", relu),
    smooth("gelu", [](Value x) { return gelu(x, GeluForm::kErf); }),
    smooth("gelu", [](Value x) { return gelu(x, GeluForm::kTanh); }),
    smooth("silu", silu, -4.0, 4.0),
    {"is_finite", "all kinds", finite},
    smooth("not", logical_not),
    {"cast", "to every dtype", cast_to_all, /*check_gradient=*/false},
    {"cast", "f64 to f64", cast_f64},
    binary("add", add),
    binary("sub", sub),
    binary("mul", mul),
    binary("div", div),
    {"fmod",
     "quotients between whole numbers",
     [](CaseBuilder& b) -> std::vector<Value> {
       const Value x = b.input({3, 7}, 5.0, 5.5), y = b.input({3, 7}, 1.9, 2.4);
       return {fmod(x, y), fmod(-x, y)};
     }},
    {"pow",
     "of positive numbers",
     [](CaseBuilder& b) -> std::vector<Value> {
       return {pow(b.input({3, 7}, 0.5, 2.0), b.input({3, 7}, -2.0, 2.0))};
     }},
    compared("maximum", maximum),
    compared("minimum", minimum),
    compared("eq", eq),
    compared("ne", ne),
    compared("lt", lt),
    compared("le", le),
    compared("gt", gt),
    compared("ge", ge),
    binary("and", logical_and),
    binary("or", logical_or),
    {"where", "every dtype", where_all},
    {"fused", "two results and a broadcast", fused_loop},
    {"fused", "rows", fused_rows, /*check_gradient=*/false},
    {"fused_each", "elements", [](CaseBuilder& b) { return fused_list(b, false); }},
    {"fused_each",
     "totals",
     [](CaseBuilder& b) {
       return fused_list(b, b.dtype() == DType::kF32 || b.dtype() == DType::kF64);
     }},
});

}  // namespace
}  // namespace ridge::test
