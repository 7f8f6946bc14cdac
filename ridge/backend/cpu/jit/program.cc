#include "ridge/backend/cpu/jit/program.h"

#include <algorithm>
#include <bit>

#include "ridge/backend/cpu/jit/bounds.h"

namespace ridge::cpu::jit {

Recorder::Recorder(Program& program, bool scales) : program_(program), scales_(scales) {}
Recorder::~Recorder() = default;

const Bounds& Recorder::bounds(int node) const { return bounds_[static_cast<size_t>(node)]; }

int Recorder::add(Node node) {
  const auto [at, is_new] = known_.try_emplace(
      {node.prim, node.lane, node.operands[0], node.operands[1], node.operands[2], node.detail},
      static_cast<int>(program_.nodes.size()));
  if (!is_new) return at->second;
  if (node.operands[0] >= 0) {
    node.invariant = true;
    for (const int operand : node.operands)
      node.invariant =
          node.invariant && (operand < 0 || program_.nodes[static_cast<size_t>(operand)].invariant);
  }
  bounds_.push_back(bounds_of(program_, bounds_, node));
  program_.nodes.push_back(node);
  return at->second;
}

int Recorder::input(int index, Lane lane, bool invariant) {
  return add({.prim = Prim::kInput, .lane = lane, .detail = index, .invariant = invariant});
}

int Recorder::constant(Lane lane, uint64_t bits) {
  return add({.prim = Prim::kConstant,
              .lane = lane,
              .detail = static_cast<int64_t>(bits),
              .invariant = true});
}

int Recorder::number(Lane lane, double value) {
  switch (lane) {
    case Lane::kF32:
      return constant(lane, std::bit_cast<uint32_t>(static_cast<float>(value)));
    case Lane::kF64:
      return constant(lane, std::bit_cast<uint64_t>(value));
    case Lane::kI32:
      return constant(lane, static_cast<uint32_t>(static_cast<int32_t>(value)));
    default:
      return constant(lane, static_cast<uint64_t>(static_cast<int64_t>(value)));
  }
}

int Recorder::unary(Prim prim, Lane lane, int a, int64_t detail) {
  return add({.prim = prim, .lane = lane, .operands = {a, -1, -1}, .detail = detail});
}

bool Recorder::is_constant(int node, Lane lane) const {
  return this->node(node).prim == Prim::kConstant && this->node(node).lane == lane;
}
bool Recorder::is_number(int node, Lane lane) const {
  return this->node(node).lane == lane && bounds(node).is_number;
}

int Recorder::binary(Prim prim, Lane lane, int a, int b) {
  const bool is_sum = prim == Prim::kAdd || prim == Prim::kSub;
  if (is_sum && lane == Lane::kI32 && is_constant(b, lane) && node(b).detail == 0) return a;
  if (lane == Lane::kF32 && is_number(a, lane) && is_constant(b, lane)) {
    const float x = float_of(node(b));
    if (is_sum && x == 0 && !bounds(a).may_be_minus_zero) return a;
    if (prim == Prim::kDiv && has_reciprocal(bounds(a), x)) return quotient(a, x);
  }
  return add({.prim = prim, .lane = lane, .operands = {a, b, -1}});
}

// The quotient rounded once, as by a division: Markstein's theorem says so of the last step, where
// the reciprocal is the nearest one and the quotient before is next to the true one (P. Markstein,
// Computation of elementary functions on the IBM RISC System/6000 processor, 1990). The product by
// the reciprocal alone may be a little further off.
int Recorder::quotient(int x, float divisor) {
  const int minus = number(Lane::kF32, -divisor), reciprocal = number(Lane::kF32, 1 / divisor);
  const Bounds of = bounds_of_quotient(bounds(x), divisor);
  const auto fma = [&](int a, int b, int c) {
    return add({.prim = Prim::kFma, .lane = Lane::kF32, .operands = {a, b, c}});
  };
  int y = add({.prim = Prim::kMul, .lane = Lane::kF32, .operands = {x, reciprocal, -1}});
  for (int turn = 0; turn < 2; ++turn) y = fma(fma(y, minus, x), reciprocal, y);
  bounds_[static_cast<size_t>(y)] = of;
  return y;
}

int Recorder::compare(Compare how, Lane lane, int a, int b) {
  return add({.prim = Prim::kCompare,
              .lane = Lane::kMask,
              .operands = {a, b, -1},
              .detail = packed_compare(how, lane)});
}

int Recorder::select(Lane lane, int mask, int a, int b) {
  const Node& how = node(mask);
  const int left = how.operands[0], right = how.operands[1];
  if (how.prim == Prim::kCompare && how.compared() == Lane::kF32 && is_number(left, Lane::kF32)) {
    if (left == right && how.compare() == Compare::kUnordered) return b;
    if (left == right && (how.compare() == Compare::kOrdered || how.compare() == Compare::kEq))
      return a;
    // x <= limit ? limit : x; of two that are equal kMax takes the second.
    const bool is_limit = how.compare() == Compare::kLe && left == b && right == a;
    if (lane == Lane::kF32 && is_limit && is_number(a, lane)) return binary(Prim::kMax, lane, b, a);
  }
  return add({.prim = Prim::kSelect, .lane = lane, .operands = {mask, a, b}});
}

int Recorder::convert(Lane to, Lane from, int a) {
  return unary(Prim::kConvert, to, a, static_cast<int64_t>(from));
}

int Recorder::look_up(const float* table, int index) {
  const int64_t at = table_at(table);
  const int low = unary(Prim::kLookUp, Lane::kF32, index, at);
  if (scales_) return low;
  const int high = unary(Prim::kLookUp, Lane::kF32, index, at + kTableEntries / 2);
  const int fourth_bit = unary(Prim::kShiftLeft, Lane::kI32, index, 28);
  const int is_high = compare(Compare::kLt, Lane::kI32, fourth_bit, number(Lane::kI32, 0));
  return select(Lane::kF32, is_high, high, low);
}

// Where in the program's tables it lies; it is added where it is new.
int64_t Recorder::table_at(const float* table) {
  std::vector<float>& all = program_.tables;
  for (size_t at = 0; at < all.size(); at += kTableEntries)
    if (std::equal(table, table + kTableEntries, all.begin() + static_cast<std::ptrdiff_t>(at)))
      return static_cast<int64_t>(at);
  all.insert(all.end(), table, table + kTableEntries);
  return static_cast<int64_t>(all.size()) - kTableEntries;
}

}  // namespace ridge::cpu::jit
