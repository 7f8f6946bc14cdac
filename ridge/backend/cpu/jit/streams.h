// Loads, stores and reductions of a vector of elements, whole or the first few of it.
#pragma once

#include "ridge/backend/cpu/jit/vector_code.h"

namespace ridge::cpu::jit {

/// Offsets from rbp of what code keeps in memory of its own.
struct WorkArea {
  static constexpr int kMostPointers = 60;
  static constexpr int kCount = 480;  ///< Elements left, in the tail.
  static constexpr int kRows = 488;   ///< Rows left.
  static constexpr int kMask32 = 512, kMask64 = 576;
  static constexpr int kTail = 640;  ///< A vector of small elements, copied one by one.
  static constexpr int kSlots = 704;
  static constexpr int kSlotBytes = 64;
};

/// rdx is the first element of the step and rsi the end; rbp the work area; r9 the lanes of
/// reductions, r8 the step's place among them. rax, rcx and rdi serve within an instruction.
class StreamCode : public VectorCode {
 public:
  using VectorCode::VectorCode;

  Address work(int offset) const { return ptr[rbp + offset]; }

 protected:
  using Reg64 = Xbyak::Reg64;

  /// Sets up for the first n - rdx elements, at most a vector.
  void set_tail(const std::byte* table32, const std::byte* table64) {
    mov(rcx, rsi);
    sub(rcx, rdx);
    mov(eax, lanes());
    cmp(rcx, rax);
    cmovg(rcx, rax);
    mov(work(WorkArea::kCount), rcx);
    if (is_avx512()) {
      mov(eax, -1);
      bzhi(eax, eax, ecx);
      kmovw(tail_mask(), eax);
      return;
    }
    neg(rcx);
    mov(rax, reinterpret_cast<uint64_t>(table32));
    vmovups(vector(scratch(0), 4), ptr[rax + rcx * 4 + 32]);
    vmovups(work(WorkArea::kMask32), vector(scratch(0), 4));
    if (lanes() * 8 > 32) return;
    mov(rax, reinterpret_cast<uint64_t>(table64));
    vmovups(vector(scratch(0), 8), ptr[rax + rcx * 8 + 32]);
    vmovups(work(WorkArea::kMask64), vector(scratch(0), 8));
  }

  /// Register d = the elements from the step's `skipped`th vector on.
  void load(DType dtype, int d, const Reg64& base, int skipped, bool tail) {
    const int size = static_cast<int>(ridge::size_of(dtype));
    const Address from = element(base, size, skipped);
    if (dtype == DType::kBool) return load_bool(d, base, from, tail);
    if (size == 1) return load_byte(dtype, d, base, from, tail);
    if (size == 2) return load_half(dtype, d, base, from, tail);
    const Xmm y = vector(d, size);
    if (!tail)
      vmovups(y, from);
    else if (is_avx512())
      size == 8 ? vmovupd(y | tail_mask() | T_z, from) : vmovups(y | tail_mask() | T_z, from);
    else
      size == 8 ? vmaskmovpd(y, tail_vector(8), from) : vmaskmovps(y, tail_vector(4), from);
  }

  /// Fetches what lies so many bytes further on; beyond the end it does nothing. What is far goes
  /// to the second-level cache, which can wait for more of it at a time than the first.
  void prefetch(DType dtype, const Reg64& base, int skipped, int ahead) {
    constexpr int kLine = 64, kNear = 2048;
    const int size = static_cast<int>(ridge::size_of(dtype)), at = skipped * lanes() * size;
    if (at % kLine != 0) return;
    const Address line = ptr[base + rdx * size + at + ahead];
    ahead > kNear ? prefetcht1(line) : prefetcht0(line);
  }

  enum class How : uint8_t { kWhole, kTail, kStreamed };

  void store(DType dtype, int s, const Reg64& base, int skipped, How how) {
    const int size = static_cast<int>(ridge::size_of(dtype));
    const Address to = element(base, size, skipped);
    if (dtype == DType::kBool) return store_bool(s, base, to, how);
    if (size == 1) return store_byte(s, base, to, how);
    if (size == 2) return store_half(dtype, s, base, to, how);
    const Xmm x = vector(s, size);
    if (how == How::kStreamed)
      vmovntps(to, x);
    else if (how == How::kWhole)
      vmovups(to, x);
    else if (is_avx512())
      size == 8 ? vmovupd(to | tail_mask(), x) : vmovups(to | tail_mask(), x);
    else
      size == 8 ? vmaskmovpd(to, tail_vector(8), x) : vmaskmovps(to, tail_vector(4), x);
  }

  /// Combines the elements in s with their lanes.
  void reduce(const Reduced& how, int s, int lanes_at, int skipped, bool tail) {
    const Lane lane = how.lane;
    const int size = size_of(lane);
    const Address at = ptr[r9 + r8 * size + lanes_at + skipped * lanes() * size];
    const Xmm x = vector(s, lane), one = vector(scratch(0), lane), two = vector(scratch(1), lane);
    if (!how.is_max) {
      arithmetic(Prim::kAdd, lane, two, x, at);
    } else {
      // The machine's maximum is x where either is NaN; a NaN in the lanes must stay.
      vmovups(one, at);
      arithmetic(Prim::kMax, lane, two, one, x);
      if (is_avx512()) {
        compare_avx512(Compare::kUnordered, lane, scratch_mask(), one, one);
        size == 8 ? vmovapd(two | scratch_mask(), one) : vmovaps(two | scratch_mask(), one);
      } else {
        size == 8 ? vcmppd(one, one, one, 3) : vcmpps(one, one, one, 3);
        size == 8 ? vblendvpd(two, two, at, one) : vblendvps(two, two, at, one);
      }
    }
    if (!tail)
      vmovups(at, two);
    else if (is_avx512())
      size == 8 ? vmovupd(at | tail_mask(), two) : vmovups(at | tail_mask(), two);
    else
      size == 8 ? vmaskmovpd(at, tail_vector(8), two) : vmaskmovps(at, tail_vector(4), two);
  }

  /// The same with the lanes in a register: AVX-512 alone.
  void reduce(const Reduced& how, int s, int lanes_in) {
    const Xmm x = vector(s, how.lane), y = vector(lanes_in, how.lane);
    if (!how.is_max) return arithmetic(Prim::kAdd, how.lane, y, y, x);
    compare_avx512(Compare::kOrdered, how.lane, scratch_mask(), y, y);
    arithmetic(Prim::kMax, how.lane, y | scratch_mask(), y, x);
  }

  /// The first element of register s (of masks, where there are such) to memory.
  void store_one(DType dtype, int s, const Reg64& to) {
    const Xmm x(s);
    switch (ridge::size_of(dtype)) {
      case 8:
        return vmovsd(qword[to], x);
      case 4:
        return vmovss(dword[to], x);
      case 2:
        if (dtype == DType::kF16) {
          vcvtps2ph(Xmm(scratch(0)), x, 0);
          vmovd(ecx, Xmm(scratch(0)));
        } else {
          vmovd(ecx, x);
          shr(ecx, 16);
        }
        return mov(word[to], cx);
      default:
        is_avx512() && dtype == DType::kBool ? kmovw(ecx, mask(s)) : vmovd(ecx, x);
        if (dtype == DType::kBool) and_(ecx, 1);
        return mov(byte[to], cl);
    }
  }

  /// Register d (of masks, where there are such) = the one element in memory, in all places.
  void load_uniform(DType dtype, int d, const Reg64& from) {
    if (dtype == DType::kBool) {
      movzx(eax, byte[from]);
      neg(eax);
      if (is_avx512()) {
        kmovw(mask(d), eax);
      } else {
        vmovd(Xmm(d), eax);
        vpbroadcastd(vector(d, 4), Xmm(d));
      }
      return;
    }
    if (ridge::size_of(dtype) == 1) {
      dtype == DType::kI8 ? movsx(eax, byte[from]) : movzx(eax, byte[from]);
      vmovd(Xmm(d), eax);
      return vpbroadcastd(vector(d, 4), Xmm(d));
    }
    if (ridge::size_of(dtype) != 2)
      return broadcast(static_cast<int>(ridge::size_of(dtype)), d, ptr[from]);
    if (dtype == DType::kF16) {
      vpbroadcastw(Xmm(d), ptr[from]);
      vcvtph2ps(Xmm(d), Xmm(d));
    } else {
      movzx(eax, word[from]);
      shl(eax, 16);
      vmovd(Xmm(d), eax);
    }
    vbroadcastss(vector(d, 4), Xmm(d));
  }

 private:
  Address element(const Reg64& base, int size, int skipped) const {
    return ptr[base + rdx * size + skipped * lanes() * size];
  }

  // The mask of the tail, in a scratch register.
  Xmm tail_vector(int size) {
    // The second holds what reduce() stores.
    const Xmm y = vector(scratch(0), size);
    vmovups(y, work(size == 8 ? WorkArea::kMask64 : WorkArea::kMask32));
    return y;
  }

  void load_half(DType dtype, int d, const Reg64& base, const Address& from, bool tail) {
    const Xmm y = vector(d, 4), half = half_vector(scratch(0));
    if (tail) {
      if (is_avx512()) {
        vmovdqu16(half | tail_mask() | T_z, from);
      } else {
        copy_tail<2>(base, false);
        vmovups(half, work(WorkArea::kTail));
      }
      dtype == DType::kF16 ? vcvtph2ps(y, half) : vpmovzxwd(y, half);
    } else {
      dtype == DType::kF16 ? vcvtph2ps(y, from) : vpmovzxwd(y, from);
    }
    if (dtype == DType::kBF16) vpslld(y, y, 16);
  }

  void load_bool(int d, const Reg64& base, const Address& from, bool tail) {
    const Xmm bytes(scratch(0));
    if (is_avx512()) {
      if (tail)
        vmovdqu8(bytes | tail_mask() | T_z, from);
      else if (lanes() == 8)
        vmovq(bytes, from);
      else
        vmovups(bytes, from);
      vptestmb(mask(d), bytes, bytes);
      return;
    }
    const Xmm y = vector(d, 4), zero = vector(scratch(0), 4);
    if (tail) copy_tail<1>(base, false);
    vpmovzxbd(y, tail ? work(WorkArea::kTail) : from);
    vxorps(zero, zero, zero);
    vpcmpgtd(y, y, zero);
  }

  void load_byte(DType dtype, int d, const Reg64& base, const Address& from, bool tail) {
    const Xmm y = vector(d, 4), bytes(scratch(0));
    const auto widen = [&](const Operand& x) {
      dtype == DType::kI8 ? vpmovsxbd(y, x) : vpmovzxbd(y, x);
    };
    if (!tail) return widen(from);
    if (is_avx512()) {
      vmovdqu8(bytes | tail_mask() | T_z, from);
      return widen(bytes);
    }
    copy_tail<1>(base, false);
    widen(work(WorkArea::kTail));
  }

  void store_half(DType dtype, int s, const Reg64& base, const Address& to, How how) {
    const Xmm half = half_vector(scratch(0)), wide = vector(scratch(0), 4);
    if (dtype == DType::kF16) {
      vcvtps2ph(half, vector(s, 4), 0);
    } else {
      vpsrld(wide, vector(s, 4), 16);
      if (is_avx512())
        vpmovdw(half, wide);
      else
        pack_words();
    }
    const bool copied = how == How::kTail && !is_avx512();
    const Address at = copied ? work(WorkArea::kTail) : to;
    if (how == How::kTail && is_avx512())
      vmovdqu16(at | tail_mask(), half);
    else if (lanes() == 4)
      vmovq(at, half);
    else
      how == How::kStreamed ? vmovntps(at, half) : vmovups(at, half);
    if (copied) copy_tail<2>(base, true);
  }

  // 32-bit elements of the first scratch register, below 2^16, as 16-bit ones.
  void pack_words() {
    const Xmm low(scratch(0)), high(scratch(1));
    if (lanes() == 8)
      vextracti128(high, Xbyak::Ymm(scratch(0)), 1);
    else
      vmovaps(high, low);
    vpackusdw(low, low, high);
  }

  void store_bool(int s, const Reg64& base, const Address& to, How how) {
    const Xmm bytes(scratch(0));
    if (is_avx512()) {
      vpmovm2b(bytes, mask(s));
      vpabsb(bytes, bytes);
      return store_packed(bytes, to, how);
    }
    vpsrld(vector(scratch(0), 4), vector(s, 4), 31);
    pack_bytes(base, to, how);
  }

  // The lowest byte of each element.
  void store_byte(int s, const Reg64& base, const Address& to, How how) {
    const Xmm bytes(scratch(0)), wide = vector(scratch(0), 4);
    if (is_avx512()) {
      vpmovdb(bytes, vector(s, 4));
      return store_packed(bytes, to, how);
    }
    vpslld(wide, vector(s, 4), 24);
    vpsrld(wide, wide, 24);
    pack_bytes(base, to, how);
  }

  // Bytes side by side, of AVX-512.
  void store_packed(const Xmm& bytes, const Address& to, How how) {
    if (how == How::kTail)
      vmovdqu8(to | tail_mask(), bytes);
    else if (lanes() == 8)
      vmovq(to, bytes);
    else
      vmovups(to, bytes);
  }

  // 32-bit elements of the first scratch register, below 2^8, as bytes to memory.
  void pack_bytes(const Reg64& base, const Address& to, How how) {
    const Xmm bytes(scratch(0));
    pack_words();
    vpackuswb(bytes, bytes, bytes);
    const Address at = how == How::kTail ? work(WorkArea::kTail) : to;
    lanes() == 8 ? vmovq(at, bytes) : vmovd(at, bytes);
    if (how == How::kTail) copy_tail<1>(base, true);
  }

  // The tail's elements from the stream to the work area, or back.
  template <int kSize>
  void copy_tail(const Reg64& base, bool back) {
    Xbyak::Label next;
    lea(rax, ptr[base + rdx * kSize]);
    mov(rcx, work(WorkArea::kCount));
    const auto inside = [&] { return rbp + rcx * kSize + WorkArea::kTail - kSize; };
    const auto outside = [&] { return rax + rcx * kSize - kSize; };
    L(next);
    if constexpr (kSize == 1) {
      movzx(edi, byte[back ? inside() : outside()]);
      mov(byte[back ? outside() : inside()], dil);
    } else {
      movzx(edi, word[back ? inside() : outside()]);
      mov(word[back ? outside() : inside()], di);
    }
    dec(rcx);
    jnz(next);
  }
};

}  // namespace ridge::cpu::jit
