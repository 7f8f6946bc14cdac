// Values that record what is done to them: the functions of isa/functions.h, called with them,
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

inline Mask operator&(Mask a, Mask b) {
  return {a.recorder, a.recorder->binary(Prim::kAnd, Lane::kMask, a.node, b.node)};
}
inline Mask operator|(Mask a, Mask b) {
  return {a.recorder, a.recorder->binary(Prim::kOr, Lane::kMask, a.node, b.node)};
}
inline Mask operator!(Mask mask) {
  return {mask.recorder, mask.recorder->unary(Prim::kNot, Lane::kMask, mask.node)};
}

/// A value of any lane but a mask, or a literal, which takes the lane of the value that it meets.
class Recorded {
 public:
  Recorded(double literal) : literal_(literal) {}
  Recorded(Recorder* recorder, Lane lane, int node)
      : recorder_(recorder), lane_(lane), node_(node) {}

  Recorder* recorder() const { return recorder_; }
  Lane lane() const { return lane_; }
  double literal() const { return literal_; }
  int node() const { return node_; }
  /// The node; a literal becomes one in the lane of `other`, which is no literal.
  int node_beside(const Recorded& other) const {
    return recorder_ != nullptr ? node_ : other.recorder_->number(other.lane_, literal_);
  }
  bool is_float() const { return lane_ == Lane::kF32 || lane_ == Lane::kF64; }

  friend Recorded operator+(const Recorded& a, const Recorded& b) { return made(Prim::kAdd, a, b); }
  friend Recorded operator-(const Recorded& a, const Recorded& b) { return made(Prim::kSub, a, b); }
  friend Recorded operator*(const Recorded& a, const Recorded& b) { return made(Prim::kMul, a, b); }
  friend Recorded operator/(const Recorded& a, const Recorded& b) { return made(Prim::kDiv, a, b); }
  friend Mask operator<(const Recorded& a, const Recorded& b) {
    return compared(Compare::kLt, a, b);
  }
  friend Mask operator<=(const Recorded& a, const Recorded& b) {
    return compared(Compare::kLe, a, b);
  }
  friend Mask operator>(const Recorded& a, const Recorded& b) {
    return compared(Compare::kGt, a, b);
  }
  friend Mask operator==(const Recorded& a, const Recorded& b) {
    return compared(Compare::kEq, a, b);
  }
  friend Mask operator>=(const Recorded& a, const Recorded& b) {
    return compared(Compare::kGe, a, b);
  }
  friend Mask operator!=(const Recorded& a, const Recorded& b) {
    return compared(Compare::kNe, a, b);
  }
  Recorded operator-() const {
    return is_float() ? with_bits(Prim::kXor, sign_bit()) : Recorded(0) - *this;
  }

  /// This with a constant's bits.
  Recorded with_bits(Prim prim, uint64_t bits) const {
    return {
        recorder_, lane_, recorder_->binary(prim, lane_, node_, recorder_->constant(lane_, bits))};
  }
  uint64_t sign_bit() const { return uint64_t{1} << (8 * size_of(lane_) - 1); }

  /// The first of the two that is no literal; a where both are.
  static const Recorded& known_of(const Recorded& a, const Recorded& b) {
    return a.recorder_ != nullptr || b.recorder_ == nullptr ? a : b;
  }

 private:
  static Recorded made(Prim prim, const Recorded& a, const Recorded& b) {
    const Recorded& known = known_of(a, b);
    return {known.recorder_,
            known.lane_,
            known.recorder_->binary(prim, known.lane_, a.node_beside(known), b.node_beside(known))};
  }
  static Mask compared(Compare how, const Recorded& a, const Recorded& b) {
    const Recorded& known = known_of(a, b);
    return {known.recorder_,
            known.recorder_->compare(how, known.lane_, a.node_beside(known), b.node_beside(known))};
  }

  Recorder* recorder_ = nullptr;
  Lane lane_ = Lane::kF32;
  int node_ = -1;
  double literal_ = 0;
};

inline Recorded fma_of(const Recorded& a, const Recorded& b, const Recorded& c) {
  const Recorded& known = Recorded::known_of(a, b);
  return {known.recorder(),
          known.lane(),
          known.recorder()->add(
              {.prim = Prim::kFma,
               .lane = known.lane(),
               .operands = {a.node_beside(known), b.node_beside(known), c.node_beside(known)}})};
}

/// Where both a and b are literals, the result is an f32.
inline Recorded select(Mask mask, const Recorded& a, const Recorded& b) {
  const Lane lane = Recorded::known_of(a, b).lane();
  const Recorded any(mask.recorder, lane, -1);
  return {mask.recorder,
          lane,
          mask.recorder->select(lane, mask.node, a.node_beside(any), b.node_beside(any))};
}

inline Recorded sqrt_of(const Recorded& x) {
  return {x.recorder(), x.lane(), x.recorder()->unary(Prim::kSqrt, x.lane(), x.node())};
}

inline Recorded negated(const Recorded& x) { return -x; }

inline Recorded magnitude(const Recorded& x) {
  return x.is_float() ? x.with_bits(Prim::kAnd, x.sign_bit() - 1) : select(x < 0.0, -x, x);
}

inline Recorded sign_of(const Recorded& x) {
  const auto whole = [&x](double value) {
    return Recorded(x.recorder(), x.lane(), x.recorder()->number(x.lane(), value));
  };
  const Recorded negative = select(x < 0.0, whole(-1), whole(0));
  const Recorded sign = select(x > 0.0, whole(1), negative);
  return x.is_float() ? select(x == x, sign, x) : sign;
}

/// The larger or the smaller float by `prim`, kMax or kMin, which takes its second operand where
/// the two are equal or either is NaN: a where they are equal, NaN where either is.
inline Recorded either(Prim prim, const Recorded& a, const Recorded& b) {
  Recorder& recorder = *a.recorder();
  const Recorded both(&recorder, a.lane(), recorder.binary(prim, a.lane(), b.node(), a.node()));
  const int is_nan = recorder.compare(Compare::kUnordered, b.lane(), b.node(), b.node());
  return select({&recorder, is_nan}, b, both);
}
inline Recorded larger_of(const Recorded& a, const Recorded& b) {
  return a.is_float() ? either(Prim::kMax, a, b) : select(a > b, a, b);
}
inline Recorded smaller_of(const Recorded& a, const Recorded& b) {
  return a.is_float() ? either(Prim::kMin, a, b) : select(a < b, a, b);
}

inline Recorded copy_sign(const Recorded& x, const Recorded& sign) {
  const Recorded of = sign.with_bits(Prim::kAnd, sign.sign_bit());
  return {x.recorder(),
          x.lane(),
          x.recorder()->binary(Prim::kOr, x.lane(), magnitude(x).node(), of.node())};
}

inline Whole bits_of(const Recorded& x) { return {x.recorder(), x.node()}; }
inline Recorded from_bits(Whole x) { return {x.recorder, Lane::kF32, x.node}; }
inline Whole shift_signed_right(Whole x, int by) {
  return {x.recorder, x.recorder->unary(Prim::kShiftRight, Lane::kI32, x.node, by)};
}
inline Recorded float_of_signed(Whole x) {
  return {x.recorder, Lane::kF32, x.recorder->convert(Lane::kF32, Lane::kI32, x.node)};
}
inline Recorded look_up(const Table16& table, Whole index) {
  return {index.recorder, Lane::kF32, index.recorder->look_up(table.of, index.node)};
}

// The machine's maximum and minimum take the second where the operands are equal or NaN.
inline Recorded at_least(const Recorded& x, double limit) {
  Recorder& recorder = *x.recorder();
  return {&recorder,
          x.lane(),
          recorder.binary(Prim::kMax, x.lane(), recorder.number(x.lane(), limit), x.node())};
}
inline Recorded at_least(const Recorded& x, const Recorded& limit) {
  return at_least(x, limit.literal());
}
inline Recorded at_most(const Recorded& x, double limit) {
  Recorder& recorder = *x.recorder();
  return {&recorder,
          x.lane(),
          recorder.binary(Prim::kMin, x.lane(), recorder.number(x.lane(), limit), x.node())};
}
inline Recorded negative_part(const Recorded& x) {
  Recorder& recorder = *x.recorder();
  return {&recorder,
          x.lane(),
          recorder.binary(Prim::kMin, x.lane(), x.node(), recorder.number(x.lane(), 0.0))};
}

inline Recorded scaled(const Recorded& x, const Recorded& shifted) {
  constexpr double kShift = 12582912;
  Recorder& recorder = *shifted.recorder();
  if (recorder.scales())
    return {&recorder,
            Lane::kF32,
            recorder.binary(
                Prim::kScale, Lane::kF32, x.node_beside(shifted), (shifted - kShift).node())};
  const Whole exponent = bits_of(shifted) - std::bit_cast<uint32_t>(static_cast<float>(kShift));
  const Whole half = shift_signed_right(exponent, 1);
  return x * from_bits((half + 127u) << 23) * from_bits((exponent - half + 127u) << 23);
}

}  // namespace ridge::cpu::jit
