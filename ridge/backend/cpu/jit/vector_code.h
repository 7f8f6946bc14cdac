// Instructions on vectors of a fixed number of elements, for AVX2 and for AVX-512: what differs
// between the two stays in here. Brings xbyak; for compile.cc alone.
#pragma once

#include <xbyak/xbyak.h>

#include "ridge/backend/cpu/jit/program.h"

namespace ridge::cpu::jit {

/// A register, or something in memory that stands for one.
struct Source {
  Xbyak::Xmm reg;
  Xbyak::Address memory{0};
  bool in_memory = false;

  const Xbyak::Operand& operand() const {
    return in_memory ? static_cast<const Xbyak::Operand&>(memory) : reg;
  }
};

class VectorCode : public Xbyak::CodeGenerator {
 public:
  using Xmm = Xbyak::Xmm;
  using Operand = Xbyak::Operand;
  using Address = Xbyak::Address;

  /// Vectors of `lanes` elements, of whatever size.
  VectorCode(size_t bytes, void* memory, bool avx512, int lanes)
      : CodeGenerator(bytes, memory), avx512_(avx512), lanes_(lanes) {}

  bool is_avx512() const { return avx512_; }
  int lanes() const { return lanes_; }
  void set_lanes(int lanes) { lanes_ = lanes; }

  /// Register `index` as a vector of elements of that size, or of a lane's.
  Xmm vector(int index, int size) const {
    const int bytes = size * lanes_;
    return {bytes == 64 ? Operand::ZMM : bytes == 32 ? Operand::YMM : Operand::XMM, index};
  }
  Xmm vector(int index, Lane lane) const { return vector(index, size_of(lane)); }

  // Not for values: what the instructions of one step need.
  int scratch(int which) const { return (avx512_ ? 30 : 14) + which; }
  int value_registers() const { return avx512_ ? 30 : 14; }
  static constexpr int kMasks = 5;  // k1 to k5 hold values
  static Xbyak::Opmask mask(int index) { return Xbyak::Opmask(index + 1); }
  static Xbyak::Opmask tail_mask() { return Xbyak::Opmask(6); }
  static Xbyak::Opmask scratch_mask() { return Xbyak::Opmask(7); }

  bool has(Prim prim, Lane lane) const {
    return avx512_ || lane != Lane::kI64 || prim != Prim::kMul;
  }
  bool has_convert(Lane to, Lane from) const {
    const auto is_float = [](Lane lane) { return lane == Lane::kF32 || lane == Lane::kF64; };
    return avx512_ ||
           !((to == Lane::kI64 && is_float(from)) || (from == Lane::kI64 && is_float(to)));
  }

  /// d = a op b.
  void arithmetic(Prim prim, Lane lane, const Xmm& d, const Xmm& a, const Operand& b) {
    const bool is_wide = size_of(lane) == 8;
    if (prim == Prim::kAnd) return is_wide ? vandpd(d, a, b) : vandps(d, a, b);
    if (prim == Prim::kOr) return is_wide ? vorpd(d, a, b) : vorps(d, a, b);
    if (prim == Prim::kXor) return is_wide ? vxorpd(d, a, b) : vxorps(d, a, b);
    if (lane == Lane::kI32 || lane == Lane::kI64) return whole_arithmetic(prim, is_wide, d, a, b);
    switch (prim) {
      case Prim::kAdd:
        return is_wide ? vaddpd(d, a, b) : vaddps(d, a, b);
      case Prim::kSub:
        return is_wide ? vsubpd(d, a, b) : vsubps(d, a, b);
      case Prim::kMul:
        return is_wide ? vmulpd(d, a, b) : vmulps(d, a, b);
      case Prim::kDiv:
        return is_wide ? vdivpd(d, a, b) : vdivps(d, a, b);
      case Prim::kScale:
        return vscalefps(d, a, b);
      case Prim::kMin:
        return is_wide ? vminpd(d, a, b) : vminps(d, a, b);
      default:
        return is_wide ? vmaxpd(d, a, b) : vmaxps(d, a, b);
    }
  }

  /// d = b * d + c.
  void fma213(Lane lane, const Xmm& d, const Xmm& b, const Operand& c) {
    lane == Lane::kF64 ? vfmadd213pd(d, b, c) : vfmadd213ps(d, b, c);
  }
  /// d = a * b + d.
  void fma231(Lane lane, const Xmm& d, const Xmm& a, const Operand& b) {
    lane == Lane::kF64 ? vfmadd231pd(d, a, b) : vfmadd231ps(d, a, b);
  }
  void root(Lane lane, const Xmm& d, const Xmm& a) {
    lane == Lane::kF64 ? vsqrtpd(d, a) : vsqrtps(d, a);
  }
  void shift_left(const Xmm& d, const Xmm& a, int by) { vpslld(d, a, static_cast<uint8_t>(by)); }
  void shift_right(const Xmm& d, const Xmm& a, int by) { vpsrad(d, a, static_cast<uint8_t>(by)); }
  /// Register d = the entries of a table, as many as the widest vectors have lanes, by the last
  /// bits of a's lanes.
  void look_up(int d, int a, const Operand& table) {
    if (avx512_)
      vpermps(Xbyak::Zmm(d), Xbyak::Zmm(a), table);
    else
      vpermps(Xbyak::Ymm(d), Xbyak::Ymm(a), table);
  }
  void move(const Xmm& d, const Operand& a) {
    if (!(a == d)) vmovups(d, a);
  }

  // ---- masks of AVX-512, and vectors of 32-bit lanes, all bits or none, of AVX2 ----

  void compare_avx512(
      Compare how, Lane lane, const Xbyak::Opmask& k, const Xmm& a, const Operand& b) {
    if (lane == Lane::kF32) return vcmpps(k, a, b, static_cast<uint8_t>(how));
    if (lane == Lane::kF64) return vcmppd(k, a, b, static_cast<uint8_t>(how));
    lane == Lane::kI32 ? vpcmpd(k, a, b, whole_predicate(how))
                       : vpcmpq(k, a, b, whole_predicate(how));
  }

  /// Uses both scratch registers.
  void compare_avx2(Compare how, Lane lane, int d, const Xmm& a, const Operand& b) {
    const int made = size_of(lane) == 8 ? scratch(0) : d;
    const Xmm y = vector(made, lane);
    if (lane == Lane::kF32)
      vcmpps(y, a, b, static_cast<uint8_t>(how));
    else if (lane == Lane::kF64)
      vcmppd(y, a, b, static_cast<uint8_t>(how));
    else
      compare_whole(how, lane, y, a, b);
    if (size_of(lane) == 8) lower_halves(d, made);
  }

  /// d = mask ? a : b. In AVX2 uses a scratch register.
  void select(Lane lane, const Xmm& d, int mask_index, const Operand& a, const Xmm& b) {
    if (avx512_) {
      const Xmm masked = d | mask(mask_index);
      size_of(lane) == 8 ? vblendmpd(masked, b, a) : vblendmps(masked, b, a);
    } else if (size_of(lane) == 8) {
      const Xmm wide = vector(scratch(0), 8);
      vpmovsxdq(wide, vector(mask_index, 4));
      vblendvpd(d, b, a, wide);
    } else {
      vblendvps(d, b, a, vector(mask_index, 4));
    }
  }

  void convert(Lane to, Lane from, int d, int s) {
    const Xmm y = vector(d, to), x = vector(s, from);
    const bool is_wide = size_of(from) == 8;
    if (to == Lane::kF32) {
      if (from == Lane::kF64) return vcvtpd2ps(y, x);
      return is_wide ? vcvtqq2ps(y, x) : vcvtdq2ps(y, x);
    }
    if (to == Lane::kF64) {
      if (from == Lane::kF32) return vcvtps2pd(y, x);
      return is_wide ? vcvtqq2pd(y, x) : vcvtdq2pd(y, x);
    }
    if (to == Lane::kI64) {
      if (from == Lane::kI32) return vpmovsxdq(y, x);
      return is_wide ? vcvttpd2qq(y, x) : vcvttps2qq(y, x);
    }
    if (from == Lane::kF32) return vcvttps2dq(y, x);
    if (from == Lane::kF64) return vcvttpd2dq(y, x);
    avx512_ ? vpmovqd(y, x) : lower_halves(d, s);
  }

  void round_f16(int d, int s) {
    const Xmm half = half_vector(scratch(0));
    vcvtps2ph(half, vector(s, 4), 0);
    vcvtph2ps(vector(d, 4), half);
  }

  /// As many 16-bit elements as a vector has lanes; at least one whole xmm register.
  Xmm half_vector(int index) const { return {lanes_ == 16 ? Operand::YMM : Operand::XMM, index}; }

  /// The number in memory, in all elements.
  void broadcast(int size, int d, const Address& from) {
    const Xmm y = vector(d, size);
    if (size == 4)
      vbroadcastss(y, from);
    else
      vpbroadcastq(y, from);
  }

 private:
  void whole_arithmetic(Prim prim, bool is_wide, const Xmm& d, const Xmm& a, const Operand& b) {
    if (prim == Prim::kAdd) return is_wide ? vpaddq(d, a, b) : vpaddd(d, a, b);
    if (prim == Prim::kSub) return is_wide ? vpsubq(d, a, b) : vpsubd(d, a, b);
    is_wide ? vpmullq(d, a, b) : vpmulld(d, a, b);
  }

  static uint8_t whole_predicate(Compare how) {
    switch (how) {
      case Compare::kEq:
        return 0;
      case Compare::kLt:
        return 1;
      case Compare::kLe:
        return 2;
      case Compare::kNe:
        return 4;
      case Compare::kGe:
        return 5;
      default:
        return 6;
    }
  }

  // AVX2 has equal and greater.
  void compare_whole(Compare how, Lane lane, const Xmm& d, const Xmm& a, const Operand& b) {
    const bool is_wide = size_of(lane) == 8;
    if (how == Compare::kEq || how == Compare::kNe) {
      is_wide ? vpcmpeqq(d, a, b) : vpcmpeqd(d, a, b);
    } else if (how == Compare::kGt || how == Compare::kLe) {
      is_wide ? vpcmpgtq(d, a, b) : vpcmpgtd(d, a, b);
    } else {
      const Xmm right = vector(scratch(1), lane);
      vmovups(right, b);
      is_wide ? vpcmpgtq(d, right, a) : vpcmpgtd(d, right, a);
    }
    if (how == Compare::kNe || how == Compare::kLe || how == Compare::kGe) {
      const Xmm ones = vector(scratch(1), lane);
      vpcmpeqd(ones, ones, ones);
      vxorps(d, d, ones);
    }
  }

  // The lower 32 bits of four 64-bit lanes.
  void lower_halves(int d, int s) {
    const Xmm high(scratch(1));
    vextractf128(high, Xbyak::Ymm(s), 1);
    vshufps(Xmm(d), Xmm(s), high, 0x88);
  }

  bool avx512_;
  int lanes_;
};

}  // namespace ridge::cpu::jit
