// What the kernels that multiply matrices share: tiles of operands in shared memory, and the sums
// of a thread over them.
//
// A tile lies depth by depth, a vector of 16 bytes after the other, so that a thread reads what it
// needs of a step of depth in whole vectors: with 8 x 8 sums of f32, four reads for 64
// multiply-adds. A warp's four reads are six wavefronts of shared memory, the multiply-adds take a
// multiprocessor sixteen cycles: shared memory is busy for little more than a third of the time.
#pragma once

#include "ridge/backend/cuda/device/kernel.h"

namespace ridge::cuda {

inline float multiply_add(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double multiply_add(double a, double b, double c) { return __builtin_fma(a, b, c); }

// How elements become factors.
struct AsTheyAre {
  template <typename In>
  static auto of(In x) {
    return value_of(x);
  }
};
struct ToF16 {
  static float of(float x) { return round_f16(x); }
};
struct ToBF16 {
  static float of(float x) { return round_bf16(x); }
};

/// Elements of a vector of 16 bytes.
template <typename T>
inline constexpr int kVector = static_cast<int>(16 / sizeof(T));

/// A tile of `kLanes` lanes (rows of the left factor, columns of the right one) by `kSteps` of
/// depth.
template <typename Sum, int kLanes, int kSteps>
struct Tile {
  static constexpr int kWidth = kVector<Sum>, kCount = kLanes;
  static_assert(kLanes % kWidth == 0);
  /// Vectors of a step. One more than it has: the next step of a lane is in another bank.
  static constexpr int kRow = kLanes / kWidth + 1;
  using Vector = Pack<Sum, kWidth>;
  Vector at[kSteps * kRow];

  Sum& element(int lane, int step) { return reinterpret_cast<Sum*>(at + step * kRow)[lane]; }
  const Vector& vector(int step, int index) const { return at[step * kRow + index]; }
};

/// A thread's part in bringing an operand's tile from memory into shared memory: fetched into
/// registers while the tile before is used, and put down when that is done. kPack elements that
/// follow each other are read at once; they run along the depth where kAlongDepth.
template <typename In,
          typename Sum,
          class Round,
          int kLanes,
          int kSteps,
          int kThreads,
          int kPack,
          bool kAlongDepth>
struct TileLoad {
  static constexpr int kInner = (kAlongDepth ? kSteps : kLanes) / kPack;  // packs of a line
  static constexpr int kLoads = kLanes * kSteps / kPack / kThreads;
  static_assert(kLoads * kPack * kThreads == kLanes * kSteps);
  static_assert((kAlongDepth ? kSteps : kLanes) % kPack == 0);

  Pack<In, kPack> held[kLoads];

  static int lane(int i) {
    const int at = i * kThreads + static_cast<int>(threadIdx.x);
    return kAlongDepth ? at / kInner : at % kInner * kPack;
  }
  static int step(int i) {
    const int at = i * kThreads + static_cast<int>(threadIdx.x);
    return kAlongDepth ? at % kInner * kPack : at / kInner;
  }

  /// `x`: of the tile's first element, in lines `stride` apart. Of the tile, so many lanes and
  /// steps are there; zeros stand for the others.
  void fetch(const In* x, int64_t stride, int64_t lanes, int64_t steps) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int64_t line = kAlongDepth ? lane(i) : step(i), inner = kAlongDepth ? step(i) : lane(i);
      if (lane(i) < lanes && step(i) < steps)
        held[i] = load<kPack>(x + line * stride + inner);
      else
        held[i] = Pack<In, kPack>{};
    }
  }

  void put(Tile<Sum, kLanes, kSteps>& tile) const {
    constexpr int kWidth = kVector<Sum>;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      if constexpr (!kAlongDepth && kPack % kWidth == 0) {
#pragma unroll
        for (int v = 0; v < kPack / kWidth; ++v) {
          Pack<Sum, kWidth> y;
#pragma unroll
          for (int k = 0; k < kWidth; ++k) y.at[k] = Round::of(held[i].at[v * kWidth + k]);
          tile.at[step(i) * tile.kRow + lane(i) / kWidth + v] = y;
        }
      } else {
#pragma unroll
        for (int k = 0; k < kPack; ++k)
          tile.element(lane(i) + (kAlongDepth ? 0 : k), step(i) + (kAlongDepth ? k : 0)) =
              Round::of(held[i].at[k]);
      }
    }
  }
};

/// The sums of a thread: kRows x kColumns of them, in vectors that lie kDown (kAcross) threads
/// apart, so that neighbours read neighbouring vectors.
template <typename Sum, int kRows, int kColumns, int kDown, int kAcross>
struct Sums {
  static constexpr int kWidth = kVector<Sum>;
  static_assert(kRows % kWidth == 0 && kColumns % kWidth == 0);

  Sum at[kRows][kColumns];

  void clear(Sum to = Sum(0)) {
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int c = 0; c < kColumns; ++c) at[r][c] = to;
  }

  /// What begins as -0 has then the bits of the first that was added.
  void add(const Sums& other) {
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int c = 0; c < kColumns; ++c) at[r][c] = at[r][c] + other.at[r][c];
  }

  void scale(Sum by) {
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int c = 0; c < kColumns; ++c) at[r][c] = at[r][c] * by;
  }

  // Where row r of this thread's sums, and vector g of their columns, lie in the tile.
  static int row(int r) {
    return (r / kWidth * kDown + static_cast<int>(threadIdx.x) / kAcross) * kWidth + r % kWidth;
  }
  static int column(int g) {
    return (g * kAcross + static_cast<int>(threadIdx.x) % kAcross) * kWidth;
  }

  static int column_of(int c) { return column(c / kWidth) + c % kWidth; }

  /// One step of depth, which lies at different steps of the tiles.
  template <class Left, class Right>
  void add_step(const Left& left, int left_step, const Right& right, int right_step) {
    constexpr int kRowVectors = kRows / kWidth, kColumnVectors = kColumns / kWidth;
    Pack<Sum, kWidth> a[kRowVectors], b[kColumnVectors];
#pragma unroll
    for (int g = 0; g < kRowVectors; ++g) a[g] = left.vector(left_step, row(g * kWidth) / kWidth);
#pragma unroll
    for (int g = 0; g < kColumnVectors; ++g) b[g] = right.vector(right_step, column(g) / kWidth);
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int c = 0; c < kColumns; ++c)
        at[r][c] =
            multiply_add(a[r / kWidth].at[r % kWidth], b[c / kWidth].at[c % kWidth], at[r][c]);
  }

  /// The first `count` of kSteps steps, in order, of the left tile from `from` on. Steps behind
  /// them would add zeros, which are not nothing where a sum is -0.
  template <int kSteps, class Left, class Right>
  void add(const Left& left, int from, const Right& right, int64_t count) {
    if (count >= kSteps) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) add_step(left, from + step, right, step);
    } else {
#pragma unroll 1
      for (int step = 0; step < count; ++step) add_step(left, from + step, right, step);
    }
  }

  /// Puts them into a tile with a lane for each row and a step for each column.
  template <class To>
  void put(To& tile) const {
#pragma unroll
    for (int c = 0; c < kColumns; ++c)
#pragma unroll
      for (int g = 0; g < kRows / kWidth; ++g) {
        Pack<Sum, kWidth> y;
#pragma unroll
        for (int k = 0; k < kWidth; ++k) y.at[k] = at[g * kWidth + k][c];
        tile.at[column_of(c) * To::kRow + row(g * kWidth) / kWidth] = y;
      }
  }

  /// Stores them in rows `stride` apart, of which `rows` are there, each of `columns`. kWhole:
  /// these are whole vectors, which lie as vectors have to.
  template <bool kWhole, typename To>
  void store(To* to, int64_t stride, int64_t rows, int64_t columns) const {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (row(r) >= rows) continue;
#pragma unroll
      for (int g = 0; g < kColumns / kWidth; ++g) {
        if (column(g) >= columns) continue;
        Pack<To, kWidth> y;
#pragma unroll
        for (int k = 0; k < kWidth; ++k) set(y.at[k], at[r][g * kWidth + k]);
        To* const first = to + row(r) * stride + column(g);
        if constexpr (kWhole)
          cuda::store<kWidth>(first, y);
        else
          store_some<kWidth>(first, y, columns - column(g));
      }
    }
  }
};

}  // namespace ridge::cuda
