// From the lanes of a reduction to its one result, in the order of Turns in isa/lanes.h.
#pragma once

#include "ridge/backend/cpu/jit/program_code.h"

namespace ridge::cpu::jit {

/// Registers 0 to 5 serve; the result is left in the first element of register 0.
class ReduceCode : public ProgramCode {
 public:
  using ProgramCode::ProgramCode;

 protected:
  static constexpr int kTurns = 4;
  static constexpr int kTurnElements = 16;

  /// The neutral element, in all elements of a register.
  void load_neutral(const Reduced& how, int d) {
    if (!how.is_max) return vxorps(Xmm(d), Xmm(d), Xmm(d));
    if (how.lane == Lane::kF32) {
      mov(eax, 0xff800000u);
      vmovd(Xmm(d), eax);
      vbroadcastss(vector(d, how.lane), Xmm(d));
    } else {
      mov(rax, uint64_t{0xfff0000000000000u});
      vmovq(Xmm(d), rax);
      vpbroadcastq(vector(d, how.lane), Xmm(d));
    }
  }

  /// Lanes in four registers from `first` on, each a turn.
  void combine_registers(const Reduced& how, int first) {
    vmovups(vector(0, how.lane), vector(first, how.lane));
    vmovups(vector(1, how.lane), vector(first + 2, how.lane));
    combine_turns(how, 0, vector(first + 1, how.lane));
    combine_turns(how, 1, vector(first + 3, how.lane));
    combine_turns(how, 0, vector(1, how.lane));
    fold(how, 1);
  }

  /// Lanes in memory.
  void combine_memory(const Reduced& how, int lanes_at) {
    const int size = size_of(how.lane), blocks = kTurnElements / lanes();
    for (int block = 0; block < blocks; ++block) {
      const auto turn = [&](int k) {
        return ptr[r9 + lanes_at + (k * kTurnElements + block * lanes()) * size];
      };
      const int other = 4;
      vmovups(vector(block, how.lane), turn(0));
      vmovups(vector(other, how.lane), turn(2));
      vmovups(vector(other + 1, how.lane), turn(1));
      combine_turns(how, block, vector(other + 1, how.lane));
      vmovups(vector(other + 1, how.lane), turn(3));
      combine_turns(how, other, vector(other + 1, how.lane));
      combine_turns(how, block, vector(other, how.lane));
    }
    fold(how, blocks);
  }

 private:
  // Register d = what it holds and b. Of equal maxima the second.
  void combine_turns(const Reduced& how, int d, const Xmm& b) {
    const Xmm a = vector(d, how.lane);
    if (!how.is_max) return arithmetic(Prim::kAdd, how.lane, a, a, b);
    if (is_avx512()) return reduce(how, b.getIdx(), d);
    choose_larger(how.lane, a, b, a);
  }

  // The same within the sixteen lanes: of equal maxima the first.
  void combine_lanes(const Reduced& how, const Xmm& a, const Xmm& b) {
    if (!how.is_max) return arithmetic(Prim::kAdd, how.lane, a, a, b);
    choose_larger(how.lane, b, a, b);
    vmovups(a, b);
  }

  // x = x where it is NaN, else the larger of x and y, y where they are equal. `d` is x.
  void choose_larger(Lane lane, const Xmm& x, const Xmm& y, const Xmm& d) {
    if (is_avx512()) {
      compare_avx512(Compare::kOrdered, lane, scratch_mask(), x, x);
      arithmetic(Prim::kMax, lane, d | scratch_mask(), x, y);
      return;
    }
    const Xmm larger(x.getKind(), scratch(0)), is_nan(x.getKind(), scratch(1));
    arithmetic(Prim::kMax, lane, larger, x, y);
    constexpr uint8_t kUnordered = 3;
    if (size_of(lane) == 8) {
      vcmppd(is_nan, x, x, kUnordered);
      vblendvpd(d, larger, x, is_nan);
    } else {
      vcmpps(is_nan, x, x, kUnordered);
      vblendvps(d, larger, x, is_nan);
    }
  }

  // Sixteen lanes in so many registers from 0 on: l with l + 8, then l + 4, l + 2, l + 1.
  void fold(const Reduced& how, int blocks) {
    for (int half = blocks / 2; half >= 1; half /= 2)
      for (int i = 0; i < half; ++i)
        combine_lanes(how, vector(i, how.lane), vector(i + half, how.lane));
    const int size = size_of(how.lane);
    for (int bytes = lanes() * size / 2; bytes >= size; bytes /= 2) {
      const Xbyak::Ymm y0(0), y1(1);
      const Xmm x0(0), x1(1);
      if (bytes == 32) {
        vextractf64x4(y1, Xbyak::Zmm(0), 1);
        combine_lanes(how, y0, y1);
        continue;
      }
      if (bytes == 16)
        vextractf128(x1, y0, 1);
      else if (bytes == 8)
        vunpckhpd(x1, x0, x0);
      else
        vshufps(x1, x0, x0, 0x55);
      combine_lanes(how, x0, x1);
    }
  }
};

}  // namespace ridge::cpu::jit
