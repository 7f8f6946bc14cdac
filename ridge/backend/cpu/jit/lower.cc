// Ops of the graph in primitive operations: elementwise ops by the forms of isa/forms.h.
#include "ridge/backend/cpu/jit/lower.h"

#include <bit>

#include "ridge/backend/cpu/block_kernel.h"
#include "ridge/backend/cpu/isa/forms.h"
#include "ridge/backend/cpu/jit/bounds.h"
#include "ridge/backend/cpu/jit/expression.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/source.h"

namespace ridge::cpu::jit {
namespace {

constexpr int kNone = -1;  // an operation without a form

std::optional<Lane> lane_of(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return Lane::kF64;
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      return Lane::kF32;
    case DType::kI64:
      return Lane::kI64;
    case DType::kI32:
    case DType::kI8:
    case DType::kU8:
      return Lane::kI32;
    case DType::kBool:
      return Lane::kMask;
    default:
      return std::nullopt;
  }
}

bool is_byte(DType dtype) { return dtype == DType::kI8 || dtype == DType::kU8; }

bool is_float_lane(Lane lane) { return lane == Lane::kF32 || lane == Lane::kF64; }

// Ops on one lane type, as nodes.
class Ops {
 public:
  Ops(Recorder& recorder, Lane lane) : recorder_(recorder), lane_(lane) {}

  int number(double value) const { return recorder_.number(lane_, value); }
  int binary(Prim prim, int a, int b) const { return recorder_.binary(prim, lane_, a, b); }
  int compare(Compare how, int a, int b) const { return recorder_.compare(how, lane_, a, b); }
  int select(int mask, int a, int b) const { return recorder_.select(lane_, mask, a, b); }

 private:
  Recorder& recorder_;
  Lane lane_;
};

int node_of(const Recorded& value) { return value.node(); }
int node_of(Mask value) { return value.node; }

// The node of a form, or kNone where it has no operations in this lane: functions of f64 call libm,
// and so do some of every lane.
template <class Form, typename... Operand>
int recorded(Recorder& recorder, Lane lane, Operand... x) {
  if constexpr (!Form::kHasCode) {
    return kNone;
  } else if constexpr (Form::kTakes == Takes::kBools) {
    return lane == Lane::kMask ? node_of(Form::of(Mask{&recorder, x}...)) : kNone;
  } else {
    const bool is_taken = is_float_lane(lane)
                              ? lane == Lane::kF32 || !Form::kIsFunction
                              : lane != Lane::kMask && Form::kTakes == Takes::kNumbers;
    return is_taken ? node_of(Form::of(Recorded(&recorder, lane, x)...)) : kNone;
  }
}

// The node of the form with the number `op`, or kNone.
template <class Forms, typename... Operand>
int node_by(int op, Recorder& recorder, Lane lane, Operand... x) {
  int node = kNone;
  Forms::for_each([&](int number, auto form) {
    if (number == op) node = recorded<decltype(form)>(recorder, lane, x...);
  });
  return node;
}

// To nearest even, as the upper half of an f32; a NaN must not round to infinity.
int rounded_bf16(Recorder& recorder, int x) {
  const Whole bits{&recorder, x};
  const Whole near = bits + 0x7fffu + (shift_signed_right(bits, 16) & 1u);
  const int is_number = recorder.compare(Compare::kEq, Lane::kF32, x, x);
  const Whole chosen{&recorder,
                     recorder.select(Lane::kF32, is_number, near.node, (bits | 0x400000u).node)};
  return (chosen & 0xffff0000u).node;
}

// An i32 modulo 256, as a byte.
int wrapped(Recorder& recorder, DType dtype, int x) {
  const Whole bits{&recorder, x};
  return (dtype == DType::kU8 ? bits & 0xffu : shift_signed_right(bits << 24, 24)).node;
}

int rounded(Recorder& recorder, DType dtype, int x) {
  if (is_byte(dtype)) return wrapped(recorder, dtype, x);
  if (dtype == DType::kF16) return recorder.unary(Prim::kRoundF16, Lane::kF32, x);
  return dtype == DType::kBF16 ? rounded_bf16(recorder, x) : x;
}

// ---- casts ----

// A f32 that rounds to the same 16-bit float as x, an f64, does: as in isa/round_odd.h.
int rounded_odd(Recorder& recorder, int x) {
  const Ops wide(recorder, Lane::kF64), whole(recorder, Lane::kI32);
  const int near = recorder.convert(Lane::kF32, Lane::kF64, x);
  const int back = recorder.convert(Lane::kF64, Lane::kF32, near);
  const auto size = [&](int value) {
    return magnitude(Recorded(&recorder, Lane::kF64, value)).node();
  };
  const int is_larger = wide.compare(Compare::kGt, size(back), size(x));
  const int is_other = wide.compare(Compare::kNe, back, x);
  const auto one_where = [&](int mask) {
    return whole.select(mask, whole.number(1), whole.number(0));
  };
  return whole.binary(
      Prim::kOr, whole.binary(Prim::kSub, near, one_where(is_larger)), one_where(is_other));
}

// Towards zero, saturating, NaN to 0.
int saturated(Recorder& recorder, Lane to, Lane from, int x) {
  const Ops ops(recorder, from), whole(recorder, to);
  const double end = to == Lane::kI32 ? 0x1p31 : 0x1p63;
  const int is_above = ops.compare(Compare::kGe, x, ops.number(end));
  const int is_below = ops.compare(Compare::kLe, x, ops.number(-end));
  const int is_number = ops.compare(Compare::kEq, x, x);
  const int truncated = recorder.convert(to, from, ops.select(is_number, x, ops.number(0)));
  const uint64_t smallest = to == Lane::kI32 ? uint64_t{1} << 31 : uint64_t{1} << 63;
  const int low = whole.select(is_below, recorder.constant(to, smallest), truncated);
  return whole.select(is_above, recorder.constant(to, smallest - 1), low);
}

// An f32 below 2^22 to which 1.5 * 2^23 was added and taken again, which rounds it; else kNone.
int rounded_by_sums(const Recorder& recorder, int x) {
  constexpr float kWhole = 12582912;
  const auto is_whole = [&](int node) {
    return recorder.node(node).prim == Prim::kConstant && float_of(recorder.node(node)) == kWhole;
  };
  const Node& difference = recorder.node(x);
  if (difference.lane != Lane::kF32 || difference.prim != Prim::kSub) return kNone;
  if (!is_whole(difference.operands[1])) return kNone;
  const Node& sum = recorder.node(difference.operands[0]);
  if (sum.prim != Prim::kAdd || sum.lane != Lane::kF32 || !is_whole(sum.operands[1])) return kNone;
  return recorder.bounds(sum.operands[0]).is_within(-0x1p22, 0x1p22) ? sum.operands[0] : kNone;
}

// A whole f32, never NaN, as an i32: by an instruction that rounds where sums did.
int whole_number(Recorder& recorder, int x) {
  if (const int from = rounded_by_sums(recorder, x); from != kNone)
    return recorder.unary(Prim::kNearest, Lane::kI32, from);
  const Node sum = recorder.node(x);
  if (sum.prim == Prim::kAdd && sum.lane == Lane::kF32 &&
      recorder.node(sum.operands[1]).prim == Prim::kConstant)
    if (const int from = rounded_by_sums(recorder, sum.operands[0]);
        from != kNone && recorder.bounds(sum.operands[1]).is_within(-0x1p22, 0x1p22) &&
        recorder.bounds(sum.operands[1]).is_whole())
      return recorder.binary(Prim::kAdd,
                             Lane::kI32,
                             recorder.unary(Prim::kNearest, Lane::kI32, from),
                             recorder.number(Lane::kI32, float_of(recorder.node(sum.operands[1]))));
  return recorder.convert(Lane::kI32, Lane::kF32, x);
}

// The whole number that is not less than 0 to which a half was added, which truncating takes away;
// else x.
int without_half(const Recorder& recorder, int x) {
  const Node& sum = recorder.node(x);
  if (sum.prim != Prim::kAdd || sum.lane != Lane::kF32) return x;
  const Node& half = recorder.node(sum.operands[1]);
  const Bounds& whole = recorder.bounds(sum.operands[0]);
  const bool is_half = half.prim == Prim::kConstant && float_of(half) == 0.5f;
  return is_half && whole.is_whole() && whole.is_within(0, 0x1p22) ? sum.operands[0] : x;
}

// A float as a byte: towards zero, saturating, NaN to 0.
int saturated_byte(Recorder& recorder, DType to, Lane from, int x) {
  const Ops ops(recorder, from);
  const bool is_signed = to == DType::kI8;
  const double least = is_signed ? -128 : 0, most = is_signed ? 127 : 255;
  if (from == Lane::kF32) {
    x = without_half(recorder, x);
    const Bounds& bounds = recorder.bounds(x);
    const bool is_byte = bounds.is_whole() && bounds.is_within(least, most);
    if (is_byte && bounds.is_number) return whole_number(recorder, x);
    // The last byte of what the machine makes of NaN is 0.
    if (is_byte && !is_signed)
      return wrapped(recorder, to, recorder.convert(Lane::kI32, Lane::kF32, x));
  }
  if (is_signed) x = ops.select(ops.compare(Compare::kEq, x, x), x, ops.number(0));
  // The machine's maximum of a NaN and a number is the number.
  const int low = ops.binary(Prim::kMax, x, ops.number(least));
  const int inside = ops.binary(Prim::kMin, low, ops.number(most));
  return recorder.convert(Lane::kI32, from, inside);
}

int cast_node(Recorder& recorder, DType from, DType to, int x) {
  if (from == to) return x;
  const Lane source = *lane_of(from), target = *lane_of(to);
  const Ops ops(recorder, source);
  if (target == Lane::kMask)
    return source == Lane::kMask ? x : ops.compare(Compare::kNe, x, ops.number(0));
  if (source == Lane::kMask)
    return recorder.select(target, x, recorder.number(target, 1), recorder.number(target, 0));
  if (is_byte(to)) {
    if (is_float_lane(source)) return saturated_byte(recorder, to, source, x);
    return wrapped(
        recorder, to, source == Lane::kI64 ? recorder.convert(Lane::kI32, source, x) : x);
  }
  if (target == Lane::kF32 && to != DType::kF32) {
    // A byte is a number of each 16-bit type.
    if (is_byte(from)) return recorder.convert(target, source, x);
    if (source == Lane::kI64) return kNone;
    if (source == Lane::kI32) x = recorder.convert(Lane::kF64, Lane::kI32, x);
    if (source != Lane::kF32) x = rounded_odd(recorder, x);
    return rounded(recorder, to, x);
  }
  if (source == target) return x;
  if (is_float_lane(source) && !is_float_lane(target))
    return saturated(recorder, target, source, x);
  return recorder.convert(target, source, x);
}

// ---- loops ----

// True when the form with the number `op` has an exact result for 16-bit floats.
template <class Forms>
bool is_exact(int op) {
  bool is = false;
  Forms::for_each([&](int number, auto form) {
    if (number == op) is = form.kIsExact;
  });
  return is;
}

bool is_exact(const Op& op) {
  if (const auto unary = unary_op(op)) return is_exact<UnaryForms>(static_cast<int>(*unary));
  const auto binary = binary_op(op);
  return binary && is_exact<BinaryForms>(static_cast<int>(*binary));
}

class Lowering {
 public:
  Lowering(const Loop& loop, bool scales) : loop_(loop), recorder_(program_, scales) {}

  std::optional<Program> run() {
    for (size_t i = 0; i < loop_.inputs.size(); ++i) {
      const LoopInput& input = loop_.inputs[i];
      program_.inputs.push_back(input.dtype);
      program_.ahead.push_back(input.ahead);
      const auto lane = lane_of(input.dtype);
      if (!lane) return std::nullopt;
      dtypes_.push_back(input.dtype);
      nodes_.push_back(kNone);
    }
    for (const LoopOp& op : loop_.ops) {
      if (!lane_of(op.dtype)) return std::nullopt;
      const int node = lowered(op);
      if (node == kNone) return std::nullopt;
      dtypes_.push_back(op.dtype);
      nodes_.push_back(node);
    }
    if (!add_results()) return std::nullopt;
    return std::move(program_);
  }

 private:
  int lowered(const LoopOp& each) {
    const Op& op = *each.op;
    if (const auto* constant = dynamic_cast<const Constant*>(&op)) return constant_node(*constant);
    const auto operand = [&](size_t i) { return node_of(each.operands[i]); };
    const DType dtype = dtypes_[static_cast<size_t>(each.operands[0])];
    const Lane lane = *lane_of(dtype), made = *lane_of(each.dtype);
    if (dynamic_cast<const Cast*>(&op) != nullptr)
      return cast_node(recorder_, dtype, each.dtype, operand(0));
    if (dynamic_cast<const Where*>(&op) != nullptr)
      return made == Lane::kMask ? chosen_mask(operand(0), operand(1), operand(2))
                                 : recorder_.select(made, operand(0), operand(1), operand(2));
    int node = kNone;
    if (const auto unary = unary_op(op))
      node = node_by<UnaryForms>(static_cast<int>(*unary), recorder_, lane, operand(0));
    else if (const auto binary = binary_op(op))
      node =
          node_by<BinaryForms>(static_cast<int>(*binary), recorder_, lane, operand(0), operand(1));
    if (node == kNone || (is_exact(op) && !is_byte(each.dtype))) return node;
    return rounded(recorder_, each.dtype, node);
  }

  // Inputs become nodes where they are first read: loaded late, they hold a register for less long.
  int node_of(int value) {
    int& node = nodes_[static_cast<size_t>(value)];
    if (node == kNone) {
      const LoopInput& input = loop_.inputs[static_cast<size_t>(value)];
      node = recorder_.input(value, *lane_of(input.dtype), input.uniform);
    }
    return node;
  }

  int chosen_mask(int mask, int a, int b) {
    const int otherwise = recorder_.unary(Prim::kNot, Lane::kMask, mask);
    return recorder_.binary(Prim::kOr,
                            Lane::kMask,
                            recorder_.binary(Prim::kAnd, Lane::kMask, mask, a),
                            recorder_.binary(Prim::kAnd, Lane::kMask, otherwise, b));
  }

  int constant_node(const Constant& constant) {
    const auto lane = lane_of(constant.dtype);
    if (!lane || !constant.is_splat()) return kNone;
    if (*lane == Lane::kMask) {
      const Ops whole(recorder_, Lane::kI32);
      const bool is_true = constant.ints.empty() ? constant.values[0] != 0 : constant.ints[0] != 0;
      return whole.compare(Compare::kNe, whole.number(is_true ? 1 : 0), whole.number(0));
    }
    if (!constant.values.empty()) return recorder_.number(*lane, constant.values[0]);
    if (is_byte(constant.dtype)) {
      const auto byte = static_cast<uint8_t>(constant.ints[0]);
      return recorder_.number(*lane,
                              constant.dtype == DType::kI8 ? static_cast<int8_t>(byte) : byte);
    }
    const auto bits = static_cast<uint64_t>(constant.ints[0]);
    return recorder_.constant(*lane, *lane == Lane::kI32 ? bits & 0xffffffffu : bits);
  }

  bool add_results() {
    program_.results = static_cast<int>(loop_.results.size());
    for (int i = 0; i < program_.results; ++i) {
      const LoopResult& result = loop_.results[static_cast<size_t>(i)];
      const auto value = static_cast<size_t>(result.value);
      const DType dtype = dtypes_[value];
      const int node = node_of(result.value);
      if (result.kind == LoopResult::kStore) {
        program_.stores.push_back({node, i, dtype, result.streamed});
        continue;
      }
      if (dtype != DType::kF32 && dtype != DType::kF64) return false;
      program_.reductions.push_back({node, i, result.kind == LoopResult::kMax, *lane_of(dtype)});
    }
    return true;
  }

  const Loop& loop_;
  Program program_;
  Recorder recorder_;
  std::vector<int> nodes_;  // by value of the loop
  std::vector<DType> dtypes_;
};

}  // namespace

std::optional<Program> lower(const Loop& loop, bool scales) { return Lowering(loop, scales).run(); }

}  // namespace ridge::cpu::jit
