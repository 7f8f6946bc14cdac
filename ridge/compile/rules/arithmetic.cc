// Rules of arithmetic. A float rule is bit-identical only where it holds for signed zeros,
// infinities and rounding too: x + 0 is not among them, for -0 + 0 is +0.
#include <bit>
#include <cmath>

#include "ridge/compile/rules/rule.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/source.h"
#include "ridge/graph/rewrite.h"

namespace ridge {
namespace {

bool is_splat_of(Value value, double number) {
  const auto splat = splat_of(value);
  return splat && *splat == number && std::signbit(*splat) == std::signbit(number);
}

// The operand of `value` when an Op made it.
template <typename Op>
Value operand_of(Value value) {
  return value.node->is<Op>() ? value.node->inputs[0] : Value{};
}

Value mul_one(const Node&, std::span<const Value> in) {
  if (is_splat_of(in[1], 1)) return in[0];
  return is_splat_of(in[0], 1) ? in[1] : Value{};
}

Value div_one(const Node&, std::span<const Value> in) {
  return is_splat_of(in[1], 1) ? in[0] : Value{};
}

Value sub_zero(const Node&, std::span<const Value> in) {
  return is_splat_of(in[1], 0) ? in[0] : Value{};
}

Value add_negative_zero(const Node&, std::span<const Value> in) {
  if (!is_float(in[0].dtype())) return {};
  if (is_splat_of(in[1], -0.0)) return in[0];
  return is_splat_of(in[0], -0.0) ? in[1] : Value{};
}

Value add_zero(const Node&, std::span<const Value> in) {
  if (is_splat_of(in[1], 0)) return in[0];
  return is_splat_of(in[0], 0) ? in[1] : Value{};
}

Value add_integer_zero(const Node& node, std::span<const Value> in) {
  return is_float(in[0].dtype()) ? Value{} : add_zero(node, in);
}

Value double_negation(const Node&, std::span<const Value> in) { return operand_of<Neg>(in[0]); }

Value add_negation(const Node&, std::span<const Value> in) {
  if (const Value b = operand_of<Neg>(in[1])) return sub(in[0], b);
  const Value a = operand_of<Neg>(in[0]);
  return a ? sub(in[1], a) : Value{};
}

Value sub_negation(const Node&, std::span<const Value> in) {
  const Value b = operand_of<Neg>(in[1]);
  return b ? add(in[0], b) : Value{};
}

Value mul_minus_one(const Node&, std::span<const Value> in) {
  if (is_splat_of(in[1], -1)) return neg(in[0]);
  return is_splat_of(in[0], -1) ? neg(in[1]) : Value{};
}

// The reciprocal of a power of two is exact, unless it leaves the range of normal numbers.
Value div_power_of_two(const Node&, std::span<const Value> in) {
  if (in[0].dtype() != DType::kF32) return {};
  const auto splat = splat_of(in[1]);
  int exponent = 0;
  if (!splat || std::frexp(std::fabs(*splat), &exponent) != 0.5 || std::abs(exponent) > 100)
    return {};
  return mul(in[0], constant_like(in[1], 1.0 / *splat));
}

// Two constants of equal fields are one value, although they are merged only later.
bool is_same(Value a, Value b) {
  return a == b || (a.node->is<Constant>() && equal(*a.node->op, *b.node->op));
}

Value where_same(const Node&, std::span<const Value> in) {
  return is_same(in[1], in[2]) ? in[1] : Value{};
}

Value where_constant(const Node&, std::span<const Value> in) {
  const auto condition = splat_of(in[0]);
  if (!condition) return {};
  return *condition != 0 ? in[1] : in[2];
}

Value double_not(const Node&, std::span<const Value> in) { return operand_of<LogicalNot>(in[0]); }

Value cast_to_same(const Node& node, std::span<const Value> in) {
  return in[0].dtype() == node.outputs[0].dtype ? in[0] : Value{};
}

// Only where the first cast kept every value.
Value cast_and_back(const Node& node, std::span<const Value> in) {
  if (!in[0].node->is<Cast>()) return {};
  const Value x = in[0].node->inputs[0];
  const DType from = x.dtype(), through = in[0].dtype();
  const bool widens = (through == DType::kF64 && is_float(from)) ||
                      (through == DType::kF32 && (from == DType::kBF16 || from == DType::kF16));
  return widens && from == node.outputs[0].dtype ? x : Value{};
}

constexpr SemanticClass kSame = SemanticClass::kBitIdentical;

constexpr Rule kRules[] = {
    {"mul_one", "mul", kSame, "x * 1 = x", mul_one},
    {"div_one", "div", kSame, "x / 1 = x", div_one},
    {"sub_zero", "sub", kSame, "x - 0 = x", sub_zero},
    {"add_negative_zero", "add", kSame, "x + (-0) = x", add_negative_zero},
    {"add_integer_zero", "add", kSame, "x + 0 = x for integers", add_integer_zero},
    {"add_zero", "add", SemanticClass::kReassociation, "x + 0 = x, though -0 + 0 is +0", add_zero},
    {"double_negation", "neg", kSame, "-(-x) = x", double_negation},
    {"add_negation", "add", kSame, "a + (-b) = a - b", add_negation},
    {"sub_negation", "sub", kSame, "a - (-b) = a + b", sub_negation},
    {"mul_minus_one", "mul", kSame, "x * -1 = -x", mul_minus_one},
    {"div_power_of_two", "div", kSame, "x / 2^k = x * 2^-k", div_power_of_two},
    {"where_same", "where", kSame, "where(c, x, x) = x", where_same},
    {"where_constant", "where", kSame, "where(true, a, b) = a", where_constant},
    {"double_not", "not", kSame, "not(not x) = x", double_not},
    {"cast_to_same", "cast", kSame, "cast(x, dtype of x) = x", cast_to_same},
    {"cast_and_back", "cast", kSame, "cast(cast(x, wider), dtype of x) = x", cast_and_back},
};

}  // namespace

std::span<const Rule> arithmetic_rules() { return kRules; }

}  // namespace ridge
