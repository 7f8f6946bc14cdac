#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "tests/support/op_audit.h"

namespace ridge::test {
namespace {

OpSample one(std::string op, std::string label, Shape shape, std::function<Value(Value)> build) {
  return {std::move(op), std::move(label), [=](CaseBuilder& b) -> std::vector<Value> {
            return {build(b.input(shape))};
          }};
}

std::vector<Value> constants(CaseBuilder& b) {
  const bool is_bool = b.dtype() == DType::kBool;
  return {constant(b.graph(), {b.dtype(), {2, 3}}, 1.0),
          constant(b.graph(),
                   {b.dtype(), {2, 2}},
                   is_bool ? std::vector<double>{1, 0, 0, 1} : std::vector<double>{1, 2, 3, 100}),
          constant(b.graph(), {b.dtype(), {}}, 0.0)};
}

std::vector<Value> ramps(CaseBuilder& b) {
  return {iota(b.graph(), {b.dtype(), {5}}, 0), iota(b.graph(), {b.dtype(), {3, 4, 5}}, 1)};
}

const OpSamples kSamples({
    {"input",
     "passed through",
     [](CaseBuilder& b) -> std::vector<Value> { return {b.input({3})}; }},
    {"constant", "splat, list, scalar", constants},
    {"iota", "two ranks", ramps},
    one("copy", "whole", {2, 3, 4}, [](Value x) { return copy(x); }),
    one("barrier", "of two", {2, 3, 4}, [](Value x) { return barrier(x, copy(x)); }),
    one("reshape", "merge", {2, 3, 4}, [](Value x) { return reshape(x, {6, -1}); }),
    one("transpose", "3d", {2, 3, 4}, [](Value x) { return transpose(x, {2, 0, 1}); }),
    one("transpose", "large", {37, 65}, [](Value x) { return transpose(x, {1, 0}); }),
    one("transpose", "heads", {2, 5, 3, 4}, [](Value x) { return transpose(x, {0, 2, 1, 3}); }),
    one("broadcast",
        "new and inner axes",
        {3, 1, 2},
        [](Value x) { return broadcast(x, {4, 3, 5, 2}); }),
    one("broadcast", "scalar", {}, [](Value x) { return broadcast(x, {3, 5}); }),
    one("slice",
        "steps",
        {7, 5, 6},
        [](Value x) { return slice(x, {1, 0, 2}, {6, 5, 6}, {2, 1, 3}); }),
    one("slice", "one axis", {4, 9}, [](Value x) { return slice(x, 1, 3, -1); }),
    one("pad", "all sides", {3, 4}, [](Value x) { return pad(x, {1, 0}, {2, 3}, {0, 2}, 1.0); }),
    one("pad", "3d zeros", {2, 3, 2}, [](Value x) { return pad(x, {0, 2, 1}, {1, 0, 0}); }),
    one("mask_columns", "rows", {3, 4, 9}, [](Value x) { return mask_columns(x, 7, -3.0); }),
    one("mask_columns", "nothing", {2, 5}, [](Value x) { return mask_columns(x, 5, 1.0); }),
    {"concat",
     "middle axis",
     [](CaseBuilder& b) -> std::vector<Value> {
       return {concat({b.input({2, 3, 4}), b.input({2, 1, 4}), b.input({2, 5, 4})}, 1)};
     }},
    {"concat",
     "last axis",
     [](CaseBuilder& b) -> std::vector<Value> {
       return {concat({b.input({3, 2}), b.input({3, 7})}, -1)};
     }},
});

}  // namespace
}  // namespace ridge::test
