// Values that record what is done to them: the functions of isa/functions.h, called with an F32,
// leave the nodes that compute them.
#pragma once

#include <bit>

#include "ridge/backend/cpu/isa/gelu_table.h"
#include "ridge/backend/cpu/jit/program.h"

namespace ridge::cpu::jit {

/// The truth of a comparison.
struct Mask {
  Recorder* recorder;
  int node;
};

/// A whole number of 32 bits that wraps.
struct Whole {
  Recorder* recorder;
  int node;

  friend Whole operator+(Whole a, Whole b) { return a.with(Prim::kAdd, b.node); }
  friend Whole operator-(Whole a, Whole b) { return a.with(Prim::kSub, b.node); }
  friend Whole operator+(Whole a, uint32_t b) { return a.with(Prim::kAdd, a.constant(b)); }
  friend Whole operator-(Whole a, uint32_t b) { return a.with(Prim::kSub, a.constant(b)); }
  friend Whole operator&(Whole a, uint32_t b) { return a.with(Prim::kAnd, a.constant(b)); }
  friend Whole operator|(Whole a, uint32_t b) { return a.with(Prim::kOr, a.constant(b)); }
  friend Whole operator<<(Whole a, int by) {
    return {a.recorder, a.recorder->unary(Prim::kShiftLeft, Lane::kI32, a.node, by)};
  }

 private:
  int constant(uint32_t bits) const { return recorder->constant(Lane::kI32, bits); }
  Whole with(Prim prim, int b) const {
    return {recorder, recorder->binary(prim, Lane::kI32, node, b)};
  }
};

/// An f32, or a number that becomes one where it meets one.
class F32 {
 public:
  F32(double literal) : literal_(literal) {}
  F32(Recorder* recorder, int node) : recorder_(recorder), node_(node) {}

  Recorder* recorder() const { return recorder_; }
  double literal() const { return literal_; }
  int node() const { return node_; }
  int node(Recorder& recorder) const {
    return recorder_ != nullptr ? node_ : recorder.number(Lane::kF32, literal_);
  }

  friend F32 operator+(const F32& a, const F32& b) { return made(Prim::kAdd, a, b); }
  friend F32 operator-(const F32& a, const F32& b) { return made(Prim::kSub, a, b); }
  friend F32 operator*(const F32& a, const F32& b) { return made(Prim::kMul, a, b); }
  friend F32 operator/(const F32& a, const F32& b) { return made(Prim::kDiv, a, b); }
  friend Mask operator<(const F32& a, const F32& b) { return compared(Compare::kLt, a, b); }
  friend Mask operator>(const F32& a, const F32& b) { return compared(Compare::kGt, a, b); }
  friend Mask operator==(const F32& a, const F32& b) { return compared(Compare::kEq, a, b); }
  F32 operator-() const { return with_bits(Prim::kXor, 0x80000000u); }

  /// This with a constant's bits.
  F32 with_bits(Prim prim, uint32_t bits) const {
    const int constant = recorder_->constant(Lane::kF32, bits);
    return {recorder_, recorder_->binary(prim, Lane::kF32, node_, constant)};
  }

  static Recorder* recorder_of(const F32& a, const F32& b) {
    return a.recorder_ != nullptr ? a.recorder_ : b.recorder_;
  }

 private:
  static F32 made(Prim prim, const F32& a, const F32& b) {
    Recorder* recorder = recorder_of(a, b);
    return {recorder, recorder->binary(prim, Lane::kF32, a.node(*recorder), b.node(*recorder))};
  }
  static Mask compared(Compare how, const F32& a, const F32& b) {
    Recorder* recorder = recorder_of(a, b);
    return {recorder, recorder->compare(how, Lane::kF32, a.node(*recorder), b.node(*recorder))};
  }

  Recorder* recorder_ = nullptr;
  int node_ = -1;
  double literal_ = 0;
};

inline F32 fma_of(const F32& a, const F32& b, const F32& c) {
  Recorder* recorder = F32::recorder_of(a, b);
  return {recorder,
          recorder->add({.prim = Prim::kFma,
                         .lane = Lane::kF32,
                         .operands = {a.node(*recorder), b.node(*recorder), c.node(*recorder)}})};
}

inline F32 select(Mask mask, const F32& a, const F32& b) {
  Recorder& recorder = *mask.recorder;
  return {&recorder, recorder.select(Lane::kF32, mask.node, a.node(recorder), b.node(recorder))};
}

inline F32 magnitude(const F32& x) { return x.with_bits(Prim::kAnd, 0x7fffffffu); }

inline F32 copy_sign(const F32& x, const F32& sign) {
  const F32 of = sign.with_bits(Prim::kAnd, 0x80000000u);
  return {x.recorder(),
          x.recorder()->binary(Prim::kOr, Lane::kF32, magnitude(x).node(), of.node())};
}

inline Whole bits_of(const F32& x) { return {x.recorder(), x.node()}; }
inline F32 from_bits(Whole x) { return {x.recorder, x.node}; }
inline Whole shift_signed_right(Whole x, int by) {
  return {x.recorder, x.recorder->unary(Prim::kShiftRight, Lane::kI32, x.node, by)};
}
inline F32 float_of_signed(Whole x) {
  return {x.recorder, x.recorder->convert(Lane::kF32, Lane::kI32, x.node)};
}
inline F32 look_up(const Table16& table, Whole index) {
  return {index.recorder, index.recorder->look_up(table.of, index.node)};
}

// The machine's maximum and minimum take the second where the operands are equal or NaN.
inline F32 at_least(const F32& x, double limit) {
  Recorder& recorder = *x.recorder();
  return {&recorder,
          recorder.binary(Prim::kMax, Lane::kF32, recorder.number(Lane::kF32, limit), x.node())};
}
inline F32 at_least(const F32& x, const F32& limit) { return at_least(x, limit.literal()); }
inline F32 at_most(const F32& x, double limit) {
  Recorder& recorder = *x.recorder();
  return {&recorder,
          recorder.binary(Prim::kMin, Lane::kF32, recorder.number(Lane::kF32, limit), x.node())};
}

inline F32 scaled(const F32& x, const F32& shifted) {
  constexpr double kShift = 12582912;
  Recorder& recorder = *shifted.recorder();
  if (recorder.scales())
    return {&recorder,
            recorder.binary(Prim::kScale, Lane::kF32, x.node(recorder), (shifted - kShift).node())};
  const Whole exponent = bits_of(shifted) - std::bit_cast<uint32_t>(static_cast<float>(kShift));
  const Whole half = shift_signed_right(exponent, 1);
  return x * from_bits((half + 127u) << 23) * from_bits((exponent - half + 127u) << 23);
}

}  // namespace ridge::cpu::jit
