#include "ridge/graph/ops/reduce.h"
#include "tests/support/op_audit.h"

namespace ridge::test {
namespace {

// Trailing, leading, middle and mixed axes, with and without keepdims.
template <typename Build>
std::vector<OpSample> over_axes(std::string op, bool distinct, Build build) {
  const auto sample =
      [&](std::string label, Shape shape, std::vector<int64_t> axes, bool keepdims) {
        return OpSample{op, std::move(label), [=](CaseBuilder& b) -> std::vector<Value> {
                          const Value x = distinct ? b.separated(shape) : b.input(shape, -1.0, 2.0);
                          return {build(x, axes, keepdims)};
                        }};
      };
  return {sample("trailing", {5, 19}, {-1}, false),
          sample("long rows", {3, 1037}, {1}, true),
          sample("leading", {21, 6}, {0}, false),
          sample("middle", {3, 5, 7}, {1}, true),
          sample("outer and inner", {3, 4, 5, 2}, {0, 2}, false),
          sample("all", {3, 4, 5}, {}, false)};
}

const OpSamples kSum(over_axes("reduce_sum", false, reduce_sum));
const OpSamples kSumI8(over_axes("reduce_sum_i8", false, reduce_sum_i8));
const OpSamples kMean(over_axes("reduce_mean", false, reduce_mean));
const OpSamples kMax(over_axes("reduce_max", true, reduce_max));

Value limited_argmax(Value x, int64_t axis) {
  ArgMax op;
  op.axis = axis;
  op.limit = x.dim(axis) / 2;
  return add_node(std::move(op), {x});
}

const OpSamples kArgMax({
    {"argmax",
     "last axis",
     [](CaseBuilder& b) -> std::vector<Value> { return {argmax(b.separated({6, 23}), -1)}; }},
    {"argmax",
     "last axis, limited",
     [](CaseBuilder& b) -> std::vector<Value> {
       return {limited_argmax(b.separated({6, 23}), 1)};
     }},
    {"argmax",
     "first axis, limited",
     [](CaseBuilder& b) -> std::vector<Value> {
       return {limited_argmax(b.separated({13, 4}), 0)};
     }},
    {"argmax",
     "first axis, with ties",
     [](CaseBuilder& b) -> std::vector<Value> {
       return {argmax(b.indices(b.dtype(), {13, 4}, 0, 3), 0)};
     }},
});

}  // namespace
}  // namespace ridge::test
