// Products of 16-bit factors by tensor cores: the instructions, each behind a function, and how
// tiles in shared memory become their operands.
//
// A warp multiplies 16 x 16 by 16 x 8 and adds to sums of f32 (mma.sync, of sm_80 and later). Which
// lane holds which element is said in NVIDIA's "Parallel Thread Execution ISA", "Matrix Fragments
// for mma.m16n8k16". With g = lane / 4 and c = lane % 4:
//   left    rows g, g + 8, g, g + 8 in four registers, of columns 2c, 2c + 1; the last two from 8
//   on right   rows 2c, 2c + 1, then from 8 on, of column g sums    row g, columns 2c and 2c + 1,
//   then row g + 8
// So two neighbouring tiles of sums, rounded to 16 bits, are a left factor as they lie.
//
// The tests run this on the CPU: there tests/backend/cuda/simulation/simt_mma.cc has the
// instructions.
#pragma once

#include "ridge/backend/cuda/device/kernel.h"

namespace ridge::cuda {

#ifdef __CUDA_ARCH__

/// An address in shared memory, in bytes.
using SharedAddress = uint32_t;
inline SharedAddress shared_address(unsigned char* at) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(at));
}

/// Copies kBytes (4, 8 or 16, and so aligned) to `to` some time before copy_wait() says that it is
/// done; zeros, and nothing is read, where `is_there` is false.
template <int kBytes>
inline void copy_async(SharedAddress to, const void* from, bool is_there) {
  if constexpr (kBytes == 16)
    asm volatile(
        "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(is_there ? 16 : 0)
        : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to),
                 "l"(from),
                 "n"(kBytes),
                 "r"(is_there ? kBytes : 0)
                 : "memory");
}
/// Ends a group of this thread's copies.
inline void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits until at most the last kGroups groups of this thread are open. What other threads have
/// copied is there when they have waited too and the block has met.
template <int kGroups>
inline void copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
}

/// Four matrices of 8 x 8: lane i says where row i % 8 of matrix i / 8 lies.
inline void load_matrices(uint32_t (&to)[4], SharedAddress row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(row)
               : "memory");
}
inline void load_matrices_transposed(uint32_t (&to)[4], SharedAddress row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(row)
               : "memory");
}

/// Four neighbours, at a multiple of 16 bytes.
inline Pack<float, 4> load_floats(SharedAddress at) {
  Pack<float, 4> x;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x.at[0]), "=f"(x.at[1]), "=f"(x.at[2]), "=f"(x.at[3])
               : "r"(at)
               : "memory");
  return x;
}

/// sums += left right.
inline void multiply_16(
    float (&sums)[4], const uint32_t (&left)[4], uint32_t right_0, uint32_t right_1, BF16) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right_0), "r"(right_1));
}
inline void multiply_16(
    float (&sums)[4], const uint32_t (&left)[4], uint32_t right_0, uint32_t right_1, F16) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right_0), "r"(right_1));
}

/// Two numbers, rounded, in one register: `low` has the lower half.
inline uint32_t pair_of(float low, float high, BF16) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
inline uint32_t pair_of(float low, float high, F16) {
  uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

/// The number of the thread, of which the compiler does not know that it is always the same: what
/// is computed from it in a loop is computed there, and no register is kept for it over the loop.
inline int thread_again() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}

/// 2^x, off by 2^-22 of it; subnormal numbers are 0.
inline float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
/// The larger of two floats; where one is NaN, the other.
inline float larger_number(float a, float b) { return fmaxf(a, b); }

#else

using SharedAddress = unsigned char*;
inline SharedAddress shared_address(unsigned char* at) { return at; }

template <int kBytes>
inline void copy_async(SharedAddress to, const void* from, bool is_there) {
  simt::copy_async(to, from, kBytes, is_there);
}
inline void copy_commit() { simt::copy_commit(); }
template <int kGroups>
inline void copy_wait() {
  simt::copy_wait(kGroups);
}
inline void load_matrices(uint32_t (&to)[4], SharedAddress row) {
  simt::load_matrices(to, row, false);
}
inline void load_matrices_transposed(uint32_t (&to)[4], SharedAddress row) {
  simt::load_matrices(to, row, true);
}
inline Pack<float, 4> load_floats(SharedAddress at) {
  return *reinterpret_cast<const Pack<float, 4>*>(at);
}
template <class Element>
inline void multiply_16(
    float (&sums)[4], const uint32_t (&left)[4], uint32_t right_0, uint32_t right_1, Element) {
  const uint32_t right[2] = {right_0, right_1};
  simt::multiply_16(sums, left, right, [](uint16_t bits) { return value_of(Element{bits}); });
}
inline uint32_t pair_of(float low, float high, BF16) {
  return static_cast<uint32_t>(bf16_bits(high)) << 16 | bf16_bits(low);
}
inline uint32_t pair_of(float low, float high, F16) {
  return static_cast<uint32_t>(f16_bits(high)) << 16 | f16_bits(low);
}
inline int thread_again() { return static_cast<int>(threadIdx.x); }
inline float exp2_of(float x) { return __builtin_exp2f(x); }
inline float larger_number(float a, float b) { return __builtin_fmaxf(a, b); }

#endif

// ---- tiles in shared memory ----

/// Bytes from row to row of a tile. Eight elements more than a row has: the eight rows of a matrix
/// lie in different banks whatever the depth, since in units of 16 bytes the distance is odd.
template <int kDepth>
inline constexpr int kRowBytes = (kDepth + 8) * 2;

/// A lane's row of a left factor's matrices, and of a right factor's that lies depth by depth.
template <int kDepth>
inline int left_lane() {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  return lane % 16 * kRowBytes<kDepth> + lane / 16 * 16;
}
/// A lane's row of a right factor's matrices, where the factor lies column by column.
template <int kDepth>
inline int right_lane() {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  return (lane / 16 * 8 + lane % 8) * kRowBytes<kDepth> + lane / 8 % 2 * 16;
}

/// Begins to copy kRows rows of kDepth elements, `kStride` apart, of which `rows` are there; the
/// others become zeros. All kThreads threads of the block call it.
template <int kRows, int kDepth, int64_t kStride, int kThreads, class Element>
inline void copy_rows(SharedAddress tile, const Element* from, int rows) {
  constexpr int kChunks = kDepth / 8, kAll = kRows * kChunks;
  static_assert(kDepth % 8 == 0 && kStride % 8 == 0);
  // Addresses of more copies at a time would take registers that the sums have, and so would those
  // of a block kept for the next.
  const int thread = thread_again();
#pragma unroll 4
  for (int first = 0; first < kAll; first += kThreads) {
    const int at = first + thread;
    if (kAll % kThreads != 0 && at >= kAll) break;
    const int row = at / kChunks, chunk = at % kChunks;
    copy_async<16>(tile + (row * kRowBytes<kDepth> + chunk * 16),
                   from + (row * kStride + chunk * 8),
                   row < rows);
  }
}

// ---- factors, 16 steps of depth at a time ----

/// Left, out of a tile whose rows are its own. `lane`: with left_lane().
template <int kRowTiles, int kDepth>
struct LeftInTile {
  SharedAddress lane;

  void load(int step, uint32_t (&to)[kRowTiles][4]) const {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
      load_matrices(to[m], lane + (m * 16 * kRowBytes<kDepth> + step * 32));
  }
};

/// Left, in registers.
template <int kRowTiles, int kSteps>
struct LeftInRegisters {
  uint32_t at[kSteps][kRowTiles][4];

  void load(int step, uint32_t (&to)[kRowTiles][4]) const {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i) to[m][i] = at[step][m][i];
  }
};

/// A left factor of kSteps times 16 steps of depth, brought into registers.
template <int kSteps, int kRowTiles, int kDepth>
inline LeftInRegisters<kRowTiles, kSteps> held(const LeftInTile<kRowTiles, kDepth>& left) {
  LeftInRegisters<kRowTiles, kSteps> made;
#pragma unroll
  for (int step = 0; step < kSteps; ++step) left.load(step, made.at[step]);
  return made;
}

/// Right, out of a tile whose rows are its columns. `lane`: with right_lane().
template <int kDepth>
struct RightByColumns {
  SharedAddress lane;
  void load(int step, int pair, uint32_t (&to)[4]) const {
    load_matrices(to, lane + (pair * 16 * kRowBytes<kDepth> + step * 32));
  }
};

/// Right, out of a tile whose rows are its steps of depth. `lane`: with left_lane().
template <int kDepth>
struct RightBySteps {
  SharedAddress lane;
  void load(int step, int pair, uint32_t (&to)[4]) const {
    load_matrices_transposed(to, lane + (step * 16 * kRowBytes<kDepth> + pair * 32));
  }
};

/// Sums of a warp: kRowTiles times 16 rows by kColumnTiles times 8 columns.
template <int kRowTiles, int kColumnTiles>
using MmaSums = float[kRowTiles][kColumnTiles][4];

template <int kRowTiles, int kColumnTiles>
inline void clear_sums(MmaSums<kRowTiles, kColumnTiles>& sums) {
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[m][n][i] = 0.0f;
}

/// sums += left right, over kSteps times 16 steps of depth.
template <class Element, int kSteps, int kRowTiles, int kColumnTiles, class Left, class Right>
inline void multiply_warp(MmaSums<kRowTiles, kColumnTiles>& sums,
                          const Left& left,
                          const Right& right) {
  static_assert(kColumnTiles % 2 == 0);
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    uint32_t a[kRowTiles][4];
    left.load(step, a);
#pragma unroll
    for (int pair = 0; pair < kColumnTiles / 2; ++pair) {
      uint32_t b[4];
      right.load(step, pair, b);
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        multiply_16(sums[m][2 * pair], a[m], b[0], b[1], Element{});
        multiply_16(sums[m][2 * pair + 1], a[m], b[2], b[3], Element{});
      }
    }
  }
}

/// The sums, rounded, as a left factor: their columns are its depth.
template <class Element, int kRowTiles, int kColumnTiles>
inline LeftInRegisters<kRowTiles, kColumnTiles / 2> as_left(
    const MmaSums<kRowTiles, kColumnTiles>& sums) {
  LeftInRegisters<kRowTiles, kColumnTiles / 2> left;
#pragma unroll
  for (int step = 0; step < kColumnTiles / 2; ++step)
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float(&tile)[4] = sums[m][2 * step + i / 2];
        left.at[step][m][i] = pair_of(tile[i % 2 * 2], tile[i % 2 * 2 + 1], Element{});
      }
  return left;
}

/// Stores the sums, rounded, as rows `kStride` apart, of which `rows` are there. `to`: the warp's
/// first row.
template <int64_t kStride, class Element, int kRowTiles, int kColumnTiles>
inline void store_sums(const MmaSums<kRowTiles, kColumnTiles>& sums, Element* to, int rows) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = m * 16 + half * 8 + lane / 4;
      if (row >= rows) continue;
      Element* const at = to + row * kStride + lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < kColumnTiles; ++n)
        *reinterpret_cast<uint32_t*>(at + n * 8) =
            pair_of(sums[m][n][half * 2], sums[m][n][half * 2 + 1], Element{});
    }
}

/// Over the four lanes that hold a row of sums.
inline float sum_of_row(float x) {
  x = x + __shfl_xor_sync(0xffffffffu, x, 1, 32);
  return x + __shfl_xor_sync(0xffffffffu, x, 2, 32);
}
inline float largest_of_row(float x) {
  x = larger_number(x, __shfl_xor_sync(0xffffffffu, x, 1, 32));
  return larger_number(x, __shfl_xor_sync(0xffffffffu, x, 2, 32));
}

}  // namespace ridge::cuda
