// Comparisons, logic and selection.
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/source.h"
#include "ridge/import/builders/functions.h"
#include "ridge/import/onnx/op_table.h"
#include "ridge/import/onnx/ops/each_element.h"

namespace ridge::onnx {
namespace {

using Binary = Value (*)(Value, Value);

template <Binary kApply>
void binary(NodeContext& n) {
  each_element(n, [](const std::vector<Value>& v) {
    check(v.size() == 2, "it has {} inputs", v.size());
    return kApply(v[0], v[1]);
  });
}

Value equal(Value a, Value b) {
  if (a.dtype() == DType::kBool) return logical_not(exclusive_or(a, b));
  return eq(a, b);
}

void logical_not_of(NodeContext& n) {
  each_element(n, [](Value x) { return logical_not(x); });
}

void where_of(NodeContext& n) {
  each_element(n, [](const std::vector<Value>& v) {
    check(v.size() == 3, "it has {} inputs", v.size());
    return where(v[0], v[1], v[2]);
  });
}

void is_nan_of(NodeContext& n) {
  each_element(n, [](Value x) { return is_nan(x); });
}

void is_inf(NodeContext& n) {
  const bool positive = n.integer("detect_positive", 1) != 0;
  const bool negative = n.integer("detect_negative", 1) != 0;
  each_element(n, [&](Value x) { return is_infinite(x, positive, negative); });
}

// The complement of x is -1 - x in two's complement, and for unsigned numbers modulo 2^bits too.
void bitwise_not(NodeContext& n) {
  each_element(n, [](Value x) {
    check(is_integer(x.dtype()), "bits of {}", name_of(x.dtype()));
    return neg(x) - 1.0;
  });
}

constexpr OpRow kLogicOps[] = {
    {"And", binary<logical_and>},
    {"BitwiseNot", bitwise_not},
    {"Equal", binary<equal>},
    {"Greater", binary<gt>},
    {"GreaterOrEqual", binary<ge>},
    {"IsInf", is_inf},
    {"IsNaN", is_nan_of},
    {"Less", binary<lt>},
    {"LessOrEqual", binary<le>},
    {"Not", logical_not_of},
    {"Or", binary<logical_or>},
    {"Where", where_of},
    {"Xor", binary<exclusive_or>},
};

}  // namespace

std::span<const OpRow> logic_ops() { return kLogicOps; }

}  // namespace ridge::onnx
